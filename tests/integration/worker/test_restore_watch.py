"""The watch over the mark of the database: what it notices, what it holds, and what releases it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.restoration import MarkedNumber
from lab_agent.errors import ServiceUnavailable, StoreError
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.store.store_mark import FileMark
from lab_agent.worker import restore_watch
from lab_agent.worker.restore_watch import RestoreWatch
from lab_agent.workflow.restored_store import load_restoration, release_restoration
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
        self.watch = self.restart()

    def restart(self) -> RestoreWatch:
        self.watch = RestoreWatch(self.bench.store, self.bench.clock, self.mark, self._hold, self._reconcile)
        return self.watch

    def _hold(self, kinds: Collection[JobKind]) -> None:
        self.held = set(kinds)

    async def _reconcile(self) -> None:
        if not self.is_service_up:
            raise ServiceUnavailable("down")

    async def release(self) -> None:
        def write(uow: UnitOfWork) -> None:
            release_restoration(uow, self.bench.clock.now(), "anna", tell_withdrawals=True)
            uow.commit()

        await self.bench.store.run(write)


@pytest.fixture
def watching(bench: WorkerBench, tmp_path: Path) -> Watching:
    return Watching(bench, tmp_path / "lab.db.mark")


async def test_first_start_holds_nothing_and_writes_the_mark(watching: Watching) -> None:
    await watching.watch.begin()
    assert watching.held == set()
    first = watching.mark.read()
    assert first is not None
    await watching.restart().begin()
    assert watching.mark.read() == MarkedNumber(first.instance, first.number + 1)
    assert await watching.bench.store.run(load_restoration) is None


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
    open_alerts = await watching.bench.store.run(lambda uow: uow.alerts.open_of({ConditionId.STORE_RESTORED}))
    assert len(open_alerts) == 1
    await watching.restart().begin()
    assert watching.held == AT_LIS, "a restart releases nothing"
    watching.bench.clock.advance(1)
    await watching.release()
    await watching.watch.look()
    assert watching.held == set()
    await watching.restart().begin()
    assert watching.held == set()


async def test_damaged_mark_is_replaced_and_holds_nothing(watching: Watching) -> None:
    watching.mark.path.write_text("no mark")
    await watching.watch.begin()
    assert watching.held == set()
    assert watching.mark.read() is not None


def put_behind_mark(watching: Watching) -> None:
    mark = watching.mark.read()
    assert mark is not None
    watching.mark.write(MarkedNumber(mark.instance, mark.number + 5))


async def test_backup_made_while_held_is_compared_again_when_it_is_put_back(watching: Watching) -> None:
    await watching.watch.begin()
    put_behind_mark(watching)
    watch = watching.restart()
    await watch.begin()
    await watch.look()
    assert watching.held == AT_LIS, "compared, not released"
    put_behind_mark(watching)
    await watching.restart().begin()
    assert watching.held == OUTBOUND


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
