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

from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.lis.simulator import local_now
from lab_sandbox.demo.processes import ProcessGroup, start_all
from lab_sandbox.demo.result_comparison import OrderFindings, compare_results
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.scenarios import HAEMOLYSED_ITEM, STAGED_ITEM, Scenario
from lab_sandbox.demo.workspace import Workspace, create_workspace
from lab_sandbox.partner.basket import orderable_items
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic, PlacedOrder
from lab_sandbox.partner.order_bundle import FAMILY_NAMES, LabelSequence
from lab_sandbox.partner.order_generator import OrderPlan, generate_plans
from lab_sandbox.partner.result_reader import OrderStatus, download_documents, read_order_status, read_reports, wait_until
from tests.harness.paths import ROOT

CONFIG = ROOT / "config"
ORDERS = max(10, round(400 * float(os.environ.get("LAB_PROOF_SHARE", "1"))))
AT_ONCE = 8
PATIENCE = 60.0 + ORDERS


def judged(plan: OrderPlan) -> Scenario:
    """What is expected of a generated order; one whose every sample is refused is not completed, and is left out before."""
    ordered = {item.id for item in plan.basket.items}
    return Scenario(
        name=plan.seed, title="", plan=plan, rejected_items=frozenset({HAEMOLYSED_ITEM} & ordered), staged=STAGED_ITEM in ordered
    )


def is_usable(plan: OrderPlan) -> bool:
    return {item.id for item in plan.basket.items} != {HAEMOLYSED_ITEM}


async def place_all(clinic: Clinic, wanted: Sequence[OrderPlan]) -> list[PlacedOrder]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def place(plan: OrderPlan) -> PlacedOrder:
        async with gate:
            return await clinic.place_order(plan)

    return list(await asyncio.gather(*(place(plan) for plan in wanted)))


async def judge_one(client: PartnerClient, record: LisRecord, ledger: CheckList, plan: OrderPlan, order: PlacedOrder) -> None:
    scene = judged(plan)
    for stage in ("final", "corrected"):
        record.release_stage(order.requisition, stage)
    with ledger.record_partner_errors(plan.seed):
        status = await wait_until(
            lambda: read_order_status(client, order), OrderStatus.has_ended, timeout=PATIENCE, description=plan.seed, interval=1.0
        )
        if scene.staged:
            await wait_until(
                lambda: read_reports(client, order),
                lambda found: any(one["status"] == "amended" for report in found for one in report.observations),
                timeout=PATIENCE,
                description=f"{plan.seed}: corrected",
            )
        found = await read_reports(client, order)
        files = [await download_documents(client, report) for report in found]
        compare_results(scene, order, OrderFindings(status, found, files), record.latest_reports(order.requisition), ledger)


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_many_orders_reach_their_expected_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = create_workspace(CONFIG, other_ports=True)
    ledger = CheckList(lambda _check: None)
    async with ProcessGroup(place.folder, place.logs) as troupe:
        await start_all(troupe, place, DemoConsole(Console(file=io.StringIO())))
        async with open_partner_client(build_account(place)) as client:
            items = orderable_items(await client.nomenclature(), await client.eta())
            wanted = list(islice(filter(is_usable, generate_plans("C-100", items, seed=20)), ORDERS))
            orders = await place_all(Clinic(client, LabelSequence(), local_now, "many"), wanted)
            for plan, order in zip(wanted, orders, strict=True):
                await judge_one(client, LisRecord(place.lis), ledger, plan, order)
    assert [check for check in ledger.checks if not check.ok] == []
    assert len(ledger.checks) >= 6 * ORDERS
    assert_nobody_is_named(place)


def assert_nobody_is_named(place: Workspace) -> None:
    """Neither a log nor the journal at rest holds a name or a telephone number as such."""
    words = [word.encode() for word in (*(family for family in FAMILY_NAMES if len(family) > 6), "+1555")]
    files = [*place.logs.iterdir(), *(place.folder / "var").rglob("*.db*")]
    assert len(files) > 5
    assert [(file.name, word) for file in files for word in words if word in file.read_bytes()] == []
