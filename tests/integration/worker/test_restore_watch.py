"""The watch over the mark of the database: what it notices, what it holds, and what releases it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from lab_agent.operations import restore_watch
from lab_agent.operations.restore_watch import RestoreWatch
from lab_agent.orders.restored_store import load_restoration, note_restoration, release_restoration
from lab_agent.orders.task_reconciliation import Comparison
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import ServiceUnavailable, StoreError
from lab_agent.store.restoration import MarkedNumber, Restoration, RestoreSign
from lab_agent.store.store_mark import FileMark
from tests.integration.worker.conftest import WorkerBench

AT_LIS = {JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS}
OUTBOUND = AT_LIS | {JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}


class Watching:
    """A watch, what it holds, and whether the service answers."""

    def __init__(self, bench: WorkerBench, mark: Path) -> None:
        self.bench = bench
        self.mark = FileMark(mark)
        self.held: set[JobKind] = set()
        self.is_service_up = True
        self.missed = 0
        self.watch = self.restart()

    def restart(self) -> RestoreWatch:
        self.watch = RestoreWatch(self.bench.store, self.bench.clock, self.mark, self._hold, self._reconcile)
        return self.watch

    def _hold(self, kinds: Collection[JobKind]) -> None:
        self.held = set(kinds)

    async def _reconcile(self) -> Comparison:
        if not self.is_service_up:
            raise ServiceUnavailable("down")
        return Comparison(3 - self.missed, self.missed)

    async def restored(self) -> Restoration:
        found = await self.bench.store.transact(load_restoration)
        assert found is not None
        return found

    async def note(self) -> None:
        """As `lab-agent restore` does after it has put a backup back."""
        await self.bench.write(lambda uow: note_restoration(uow, RestoreSign.COMMAND, self.bench.clock.now()))

    async def release(self) -> None:
        await self.bench.write(lambda uow: release_restoration(uow, self.bench.clock.now(), "anna"))


@pytest.fixture
def watching(bench: WorkerBench, tmp_path: Path) -> Watching:
    return Watching(bench, tmp_path / "lab.db.mark")


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_first_start_holds_nothing_and_writes_the_mark(watching: Watching, is_damaged: bool) -> None:
    if is_damaged:
        watching.mark.path.write_text("no mark")
    await watching.watch.begin()
    first = watching.mark.read()
    assert (watching.held, first is None) == (set(), False)
    await watching.restart().begin()
    assert first is not None
    assert watching.mark.read() == MarkedNumber(first.instance, first.number + 1)
    assert await watching.bench.store.transact(load_restoration) is None


@pytest.mark.parametrize(
    "change", [lambda mark: MarkedNumber(mark.instance, mark.number + 5), lambda _: MarkedNumber("other", 1)]
)
async def test_restored_database_is_held_until_compared_and_released(
    watching: Watching, change: Callable[[MarkedNumber], MarkedNumber]
) -> None:
    await watching.watch.begin()
    before = watching.mark.read()
    assert before is not None
    watching.mark.write(change(before))
    watching.is_service_up = False
    await watching.restart().begin()
    assert watching.held == OUTBOUND
    with pytest.raises(ServiceUnavailable):
        await watching.watch.look()
    assert watching.held == OUTBOUND
    watching.is_service_up = True
    await watching.watch.look()
    assert watching.held == AT_LIS
    assert [key.condition for key in await watching.bench.open_alerts()] == [ConditionId.STORE_RESTORED]
    await watching.restart().begin()
    assert watching.held == AT_LIS, "a restart releases nothing"
    watching.bench.clock.advance(1)
    await watching.release()
    await watching.watch.look()
    assert watching.held == set()
    await watching.restart().begin()
    assert watching.held == set()


async def test_mark_that_cannot_be_replaced_is_told_once(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: FileMark, __: MarkedNumber) -> None:
        raise StoreError("no room")

    await watching.watch.begin()
    watching.mark.write(MarkedNumber("other", 1))
    monkeypatch.setattr(FileMark, "write", fail)
    monkeypatch.setattr(restore_watch, "MARK_INTERVAL", 0.0)
    watch = watching.restart()
    await watch.begin()
    await watch.look()
    await watching.release()
    await watch.look()
    assert watching.held == set()


async def test_order_that_could_not_be_compared_is_told_and_compared_later(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watching.note()
    await watching.watch.begin()
    watching.missed = 1
    await watching.watch.look()
    compared_at = (await watching.restored()).reconciled_at
    assert compared_at is not None
    assert (await watching.restored()).not_compared == 1
    watching.missed = 0
    monkeypatch.setattr("lab_agent.operations.restore_watch.MARK_INTERVAL", 0)
    await watching.watch.look()
    assert (await watching.restored()).not_compared == 0
    assert (await watching.restored()).reconciled_at == compared_at


async def test_backup_of_a_held_database_is_compared_anew(watching: Watching) -> None:
    """What was compared before the backup says nothing of what was done after it."""
    await watching.watch.begin()
    await watching.note()
    await watching.restart().begin()
    await watching.watch.look()
    assert watching.held == AT_LIS
    known_until = (await watching.restored()).known_until
    assert known_until is not None
    watching.bench.clock.advance(60)
    await watching.note()
    assert (await watching.restored()).reconciled_at is None
    assert (await watching.restored()).known_until == known_until
    watching.is_service_up = False
    await watching.restart().begin()
    assert watching.held == OUTBOUND
