"""Many generated orders through all programs at once: each comes to its right end, each value arrives digit for digit."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from lab_sandbox.demo.cast import bring_up
from lab_sandbox.demo.findings import Found, judge
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.lis.run import local_now
from lab_sandbox.demo.performance import account
from lab_sandbox.demo.programs import Troupe
from lab_sandbox.demo.record import Record
from lab_sandbox.demo.scenes import HAEMOLYSED, STAGED, Scene
from lab_sandbox.demo.screen import Screen
from lab_sandbox.demo.workplace import Workplace, fresh_workplace
from lab_sandbox.partner.basket import orderable
from lab_sandbox.partner.client import PartnerClient, partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.generator import Plan, plans
from lab_sandbox.partner.labels import Labels
from lab_sandbox.partner.patients import FAMILIES
from lab_sandbox.partner.placed import PlacedOrder
from lab_sandbox.partner.reading import OrderStatus, documents, order_status, reports, until

CONFIG = Path(__file__).parents[2] / "config"
ORDERS = max(10, round(400 * float(os.environ.get("LAB_PROOF_SHARE", "1"))))
AT_ONCE = 8
PATIENCE = 60.0 + ORDERS


def judged(plan: Plan) -> Scene:
    """What is expected of a generated order; one whose every sample is refused is not completed, and is left out before."""
    ordered = {item.id for item in plan.basket.items}
    return Scene(name=plan.seed, title="", plan=plan, refused=frozenset({HAEMOLYSED} & ordered), staged=STAGED in ordered)


def is_usable(plan: Plan) -> bool:
    return {item.id for item in plan.basket.items} != {HAEMOLYSED}


async def place_all(clinic: Clinic, wanted: Sequence[Plan]) -> list[PlacedOrder]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def place(plan: Plan) -> PlacedOrder:
        async with gate:
            return await clinic.place(plan)

    return list(await asyncio.gather(*(place(plan) for plan in wanted)))


async def judge_one(client: PartnerClient, record: Record, ledger: Ledger, plan: Plan, order: PlacedOrder) -> None:
    scene = judged(plan)
    for stage in ("final", "corrected"):
        record.let_go(order.requisition, stage)
    with ledger.about(plan.seed):
        status = await until(lambda: order_status(client, order), OrderStatus.ended, within=PATIENCE, what=plan.seed, pause=1.0)
        if scene.staged:
            await until(
                lambda: reports(client, order),
                lambda found: any(one["status"] == "amended" for report in found for one in report.observations),
                within=PATIENCE,
                what=f"{plan.seed}: corrected",
            )
        found = await reports(client, order)
        files = [await documents(client, report) for report in found]
        judge(scene, order, Found(status, found, files), record.reported(order.requisition), ledger)


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_many_orders_come_to_their_right_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = fresh_workplace(CONFIG, other_ports=True)
    ledger = Ledger(lambda _check: None)
    async with Troupe(place.folder, place.logs) as troupe:
        await bring_up(troupe, place, Screen(Console(file=io.StringIO())))
        async with partner_client(account(place)) as client:
            items = orderable(await client.nomenclature(), await client.eta())
            wanted = list(islice(filter(is_usable, plans("C-100", items, seed=20)), ORDERS))
            orders = await place_all(Clinic(client, Labels(), local_now, "many"), wanted)
            for plan, order in zip(wanted, orders, strict=True):
                await judge_one(client, Record(place.lis), ledger, plan, order)
    assert [check for check in ledger.checks if not check.ok] == []
    assert len(ledger.checks) >= 6 * ORDERS
    assert_nobody_is_named(place)


def assert_nobody_is_named(place: Workplace) -> None:
    """Neither a log nor the journal at rest holds a name or a telephone number as such."""
    words = [word.encode() for word in (*(family for family in FAMILIES if len(family) > 6), "+1555")]
    files = [*place.logs.iterdir(), *(place.folder / "var").rglob("*.db*")]
    assert len(files) > 5
    assert [(file.name, word) for file in files for word in words if word in file.read_bytes()] == []
