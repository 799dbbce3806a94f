"""A database restored from a backup, whole: orders that were finished since are left alone, and the rest waits for a person."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab_agent.store.backups import list_backups
from lab_sandbox.demo.processes import program_path
from lab_sandbox.demo.toml_edit import set_values
from lab_sandbox.partner.errors import Json
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.installation import FolderLis, ProcessHarness
from tests.harness.proof import FIGURES, SHARE, in_full

ORDERS, MANY = 4, 500


class Laboratory:
    """The processes of a test, and a laboratory system that reports when it is told to."""

    def __init__(self, harness: ProcessHarness) -> None:
        self.harness = harness
        self.waiting: list[Json] = []
        self.report_now = False
        report = harness.lis.report

        def report_later(order: Json) -> None:
            if self.report_now:
                report(order)
            else:
                self.waiting.append(order)

        harness.lis.report = report_later  # type: ignore[method-assign]

    @property
    def database(self) -> Path:
        return self.harness.workspace.folder / "var/demo/lab-agent.db"

    def report_all(self) -> None:
        for order in self.waiting:
            FolderLis.report(self.harness.lis, order)
        self.report_now = True

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        command = [program_path("lab-agent"), *words, "--config", str(self.harness.workspace.agent_settings)]
        done = subprocess.run(command, cwd=self.harness.workspace.folder, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def restored(self) -> dict[str, Any]:
        """What is said of the restore; nothing before it was noticed."""
        return json.loads(self.run("restored", "show", "--json", codes=(0, 1))) or {}

    def is_compared(self) -> bool:
        return self.restored().get("compared_with_the_service", "not yet") != "not yet"

    def cancellations(self) -> list[Path]:
        return [each for each in self.harness.lis.orders.parent.rglob("*cancel*") if each.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True], ids=["command", "copied by hand"])
async def test_finished_orders_are_not_cancelled(harness: ProcessHarness, by_hand: bool, tmp_path: Path) -> None:
    await restored_after_all_was_done(harness, ORDERS, tmp_path, by_hand=by_hand)


@pytest.mark.proof
@in_full
@pytest.mark.parametrize("harness", ["http", "sql", "hl7v2"], indirect=True)
async def test_finished_orders_are_not_cancelled_by_other_adapters(harness: ProcessHarness, tmp_path: Path) -> None:
    await restored_after_all_was_done(harness, 2, tmp_path, by_hand=False)


@pytest.mark.proof
@in_full
@pytest.mark.timeout(3600)
async def test_hundreds_of_finished_orders_are_not_cancelled(harness: ProcessHarness, tmp_path: Path) -> None:
    set_values(harness.workspace.agent_settings, "rules", {"refusal_limit": MANY + 1})  # a line of each order is rejected
    await restored_after_all_was_done(harness, max(ORDERS, int(MANY * SHARE)), tmp_path, by_hand=False, timeout=1500)
    FIGURES.add(orders_before_the_restore=max(ORDERS, int(MANY * SHARE)), cancelled_by_mistake=0)


async def restored_after_all_was_done(
    harness: ProcessHarness, number_of_orders: int, tmp_path: Path, *, by_hand: bool, timeout: float = DEADLINE
) -> None:
    lab = Laboratory(harness)
    agent = await harness.start_agent()
    orders = [await harness.place_order(f"restore {number}") for number in range(number_of_orders)]
    handed_over = "action=order_handed_over"
    await wait_until(
        lambda: len(harness.log_lines(handed_over)) == number_of_orders, "every order is handed over", timeout=timeout
    )
    lab.run("backup", "--folder", str(tmp_path))
    (backup,) = list_backups(tmp_path)

    lab.report_all()
    for order in orders:
        await harness.wait_until_ended(order)
    assert await agent.stop() == 0
    if by_hand:
        shutil.copy(backup.path, lab.database)
        for ending in ("-wal", "-shm"):
            lab.database.with_name(lab.database.name + ending).unlink(missing_ok=True)
    else:
        assert "restored" in lab.run("restore", str(backup.path), "--yes")

    agent = await harness.start_agent()
    await wait_until(lab.is_compared, "the open orders are compared", timeout=timeout)
    found = lab.restored()
    assert (found["orders_found_completed"], found["orders_found_withdrawn"], found["cancellations_to_tell"]) == (
        number_of_orders,
        0,
        0,
    )
    assert found["orders_not_compared"] == 0
    assert found["lines_without_a_result"] == 0

    newest = await harness.place_order("after the restore")
    await wait_until(lambda: lab.restored()["orders_to_hand_over"] == 1, "the new order waits")
    assert len(harness.lis.received) == number_of_orders
    lab.run("restored", "release", "--yes")
    for order in (*orders, newest):
        await harness.wait_until_ended(order)
        await harness.check_everything_once(order)
    check_told_once(harness, lab, number_of_orders + 1)
    assert await agent.stop() == 0


def check_told_once(harness: ProcessHarness, lab: Laboratory, number_of_orders: int) -> None:
    """The laboratory system got each order once, and was told of no withdrawal."""
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received) == number_of_orders
    assert lab.cancellations() == []
