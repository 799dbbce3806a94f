"""Many generated orders through all programs at once: each ends as expected, each value arrives with all its digits."""

from __future__ import annotations

import asyncio
import io
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
from tests.harness.proof import SHARE

CONFIG = ROOT / "config"
ORDERS = max(10, round(400 * SHARE))
AT_ONCE = 8
TIMEOUT = 60.0 + ORDERS


def expected_outcome(plan: OrderPlan) -> Scenario:
    ordered = {item.id for item in plan.basket.items}
    return Scenario(
        name=plan.seed, title="", plan=plan, rejected_items=frozenset({HAEMOLYSED_ITEM} & ordered), staged=STAGED_ITEM in ordered
    )


def is_usable(plan: OrderPlan) -> bool:
    """An order whose only sample is rejected does not end as completed, and is left out."""
    return {item.id for item in plan.basket.items} != {HAEMOLYSED_ITEM}


async def place_all(clinic: Clinic, plans: Sequence[OrderPlan]) -> list[PlacedOrder]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def place(plan: OrderPlan) -> PlacedOrder:
        async with limit:
            return await clinic.place_order(plan)

    return list(await asyncio.gather(*(place(plan) for plan in plans)))


async def check_one(client: PartnerClient, record: LisRecord, check_list: CheckList, plan: OrderPlan, order: PlacedOrder) -> None:
    scenario = expected_outcome(plan)
    for stage in ("final", "corrected"):
        record.release_stage(order.requisition, stage)
    with check_list.record_partner_errors(plan.seed):
        status = await wait_until(
            lambda: read_order_status(client, order), OrderStatus.has_ended, timeout=TIMEOUT, description=plan.seed, interval=1.0
        )
        if scenario.staged:
            await wait_until(
                lambda: read_reports(client, order),
                lambda found: any(one["status"] == "amended" for report in found for one in report.observations),
                timeout=TIMEOUT,
                description=f"{plan.seed}: corrected",
            )
        found = await read_reports(client, order)
        files = [await download_documents(client, report) for report in found]
        compare_results(
            scenario, order, OrderFindings(status, found, files), record.latest_reports(order.requisition), check_list
        )


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_many_orders_reach_their_expected_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = create_workspace(CONFIG, other_ports=True)
    check_list = CheckList(lambda _check: None)
    async with ProcessGroup(workspace.folder, workspace.logs) as processes:
        await start_all(processes, workspace, DemoConsole(Console(file=io.StringIO())))
        async with open_partner_client(build_account(workspace)) as client:
            items = orderable_items(await client.nomenclature(), await client.eta())
            plans = list(islice(filter(is_usable, generate_plans("C-100", items, seed=20)), ORDERS))
            orders = await place_all(Clinic(client, LabelSequence(), local_now, "many"), plans)
            for plan, order in zip(plans, orders, strict=True):
                await check_one(client, LisRecord(workspace.lis), check_list, plan, order)
    assert [check for check in check_list.checks if not check.ok] == []
    assert len(check_list.checks) >= 6 * ORDERS
    assert_no_patient_data(workspace)


def assert_no_patient_data(workspace: Workspace) -> None:
    """Neither a log nor the database holds a name or a telephone number in plain text."""
    words = [word.encode() for word in (*(family for family in FAMILY_NAMES if len(family) > 6), "+1555")]
    files = [*workspace.logs.iterdir(), *(workspace.folder / "var").rglob("*.db*")]
    assert len(files) > 5
    assert [(file.name, word) for file in files for word in words if word in file.read_bytes()] == []
