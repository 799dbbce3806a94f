"""The laws of a simulated day, checked after each of its steps and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.serialization import load_stored_message
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared import exact_json
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OPEN_JOBS, LineState, OrderState, ReportState
from lab_agent.store.unit_of_work import UnitOfWork
from tests.simulation.simulation_run import Invariants

if TYPE_CHECKING:
    from tests.simulation.day_laboratory import SentVersion
    from tests.simulation.day_run import DayRun

_SETTLED = {ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED}
"""A person dismisses what was overtaken by a later version; the last one is delivered."""


@dataclass
class DayLaws(Invariants):
    run: DayRun
    checked: int = 0
    """Laws that were checked, each time anew."""
    _versions: dict[str, int] = field(default_factory=dict)
    """The version of each resource of ours that was looked at last."""
    _owners: dict[str, str] = field(default_factory=dict)
    _acknowledged: dict[str, int] = field(default_factory=dict)
    _seen_writes: int = 0

    async def check_after_step(self) -> None:
        """Check what holds at any time."""
        await self.check_at_any_time()
        self._check_nothing_rejected_is_there()
        await self._check_whole_orders_rejected()
        assert not (late := self.run.store.written_after_end), f"a late owner has written a job that had ended: {late}"
        await self._check_acknowledged_is_stored()
        await self._check_nobody_waits_in_the_dark()
        if self._seen_writes != self.run.writes:
            self._seen_writes = self.run.writes
            self._check_resources()
            self._check_completed_tasks()
            for order in self.run.orders:
                self._check_partner_edits(order)
                for task in (order.task, *order.lines):
                    self._check_terminal_status(task)
        self.checked += 14

    async def check(self) -> None:
        """Check what holds at the end."""
        await super().check()
        await self.check_after_step()
        await self._check_all_delivered()
        self.checked += 7

    def _check_nothing_rejected_is_there(self) -> None:
        """What is wrong with an order is told to the partner, and is none of the laboratory's work."""
        base_url = self.run.world.settings.exchange.base_url
        there = {line.key for _, order in self.run.submitted() for line in order.lines}
        for order in self.run.orders:
            wrong = {self.run.line_key(task) for task in order.invalid_lines}
            assert wrong.isdisjoint(there), f"a rejected line was handed over: {wrong & there} of {base_url}"

    async def _check_whole_orders_rejected(self) -> None:
        """Where one bad line rejects its order, no other line of it was handed over."""
        if self.run.world.settings.worker.on_line_error != "cancel_order":
            return
        there = {order.key for _, order in self.run.submitted()}
        for order in self.run.orders:
            key = self.run.world.order_key_of(order.task)
            if order.invalid_lines and key in there:
                _, lines = await self.run.world.stored_order(order.task)
                rejected = [line for line in lines if line.task_id in order.invalid_lines and line.state is LineState.REJECTED]
                assert not rejected, f"a rejected order was handed over: {key}"

    async def _check_acknowledged_is_stored(self) -> None:
        """What the laboratory's system was told to forget is in our store (law 1)."""
        for name, lis in self.run.world.systems.items():
            new = lis.acknowledged[self._acknowledged.get(name, 0) :]
            self._acknowledged[name] = len(lis.acknowledged)
            if new:
                stored = await StoreInbox(self.run.world.store, self.run.world.clock, name).find_accepted(new)
                lost = sorted(set(new) - stored)
                assert not lost, f"acknowledged and not stored: {lost}"

    async def _check_nobody_waits_in_the_dark(self) -> None:
        """Whatever waits for a person says why (law 11), and whatever waits for its turn has a job."""

        def find(uow: UnitOfWork) -> tuple[list[object], list[object]]:
            silent: list[object] = [job for job in uow.jobs.needing_operator(limit=100) if not job.reason]
            silent += [report for report in uow.reports.needing_operator() if not report.reason]
            received = uow.reports.waiting(ReportState.RECEIVED, None, after=0, limit=100)
            return silent, [report for report in received if report.order and not _has_job(uow, report)]

        silent, forgotten = await self.run.world.store.transact(find)
        assert not silent, f"waits for a person without a reason: {silent}"
        assert not forgotten, f"waits for its turn, which never comes: {forgotten}"

    # --- results

    def _check_resources(self) -> None:
        """Each value is on the service once, in its own order, digit for digit, and never an older one after a newer one."""
        for kind in ("Observation", "DiagnosticReport"):
            for found in self.run.world.service.store.find(kind, [], lambda _: True, limit=10_000):
                if self._versions.get(found.ref.id) != found.version:
                    self._check_resource(kind, found)
                    self._versions[found.ref.id] = found.version

    def _check_resource(self, kind: str, found: Any) -> None:
        history = [exact_json.loads(body) for body in reversed(self.run.world.service.store.versions(found))]
        name = history[-1]["identifier"][0]["value"]
        assert self._owners.setdefault(name, found.ref.id) == found.ref.id, f"twice on the service: {kind} {name}"
        report, _, observation = (name, "", "") if kind == "DiagnosticReport" else name.rpartition(".")
        assert report in self.run.laboratory.versions, f"a result of another order or line: {name}"
        versions = self.run.laboratory.versions[report]
        order = next(each for each in self.run.orders if versions[0].line in map(self.run.line_key, each.lines))
        for body in history:
            subject = body["subject"]["reference"]
            assert subject == self.run.subjects[order.task], f"a reference is not as the partner writes it: {subject}"
        if kind == "Observation":
            sent = [each.values.get(observation) for each in versions]
            self._check_values(name, [str(body["valueQuantity"]["value"]) for body in history], sent)

    def _check_values(self, name: str, shown: list[str], sent: list[str | None]) -> None:
        place = 0
        for value in shown:
            assert value in sent, f"a value was changed on its way: {name} {value}, sent was {sent}"
            later = [number for number, each in enumerate(sent) if each == value and number >= place]
            assert later, f"an older version came after a newer one: {name} {shown}, sent was {sent}"
            place = later[0]

    def _check_completed_tasks(self) -> None:
        """No Task says completed before its report is on the service, unless the partner said so."""
        world = self.run.world
        for order in self.run.orders:
            for task in order.lines:
                if world.get_task(task)["status"] == "completed" and task not in world.ended_by_partner:
                    key = self.run.line_key(task)
                    names = [
                        name for name, versions in self.run.laboratory.versions.items() if versions and versions[0].line == key
                    ]
                    assert any(name in self._owners for name in names), f"completed without a report: {key}"

    async def _check_all_delivered(self) -> None:
        """Every message came to its end, and the newest version of each report is what the clinic reads."""
        store, observations = self.run.world.store, self.run.world.resources("Observation")
        shown = {each["identifier"][0]["value"]: str(each["valueQuantity"]["value"]) for each in observations}
        waiting = await store.transact(lambda uow: uow.reports.needing_operator())
        assert not waiting, f"a result was not delivered: {[(each.key, each.state.value, each.reason) for each in waiting]}"
        for report, versions in self.run.laboratory.versions.items():
            newest = versions[-1]
            of = (newest.order, newest.system, newest.line)
            records = await store.transact(lambda uow, of=of: uow.reports.versions(*of))
            if not self.run.laboratory.constant_ids:
                assert len(records) == len(versions), f"a result is in no order, or in two: {report}"
            for each in records:
                assert each.state in _SETTLED, f"a result was not delivered: {each.key} is {each.state.value} ({each.reason})"
                assert isinstance(load_stored_message(each.body), LabReport)
            last = self._find_last(newest, records)
            assert last.state is ReportState.DELIVERED, f"the newest version was not delivered: {report} {last.state.value}"
            for name, value in newest.values.items():
                there = shown.get(f"{report}.{name}")
                assert there == value, f"not what the laboratory said last: {report}.{name} is {there}, not {value}"
        for order in await self.run.known_orders():
            record, lines = await self.run.world.stored_order(order.task)
            assert record.state is OrderState.CLOSED, "an order did not end"
            assert all(line.state is not LineState.RESULTED for line in lines), "a line waits for its report"

    def _find_last(self, newest: SentVersion, records: Sequence[ReportRecord]) -> ReportRecord:
        """The record of what was sent last: where messages have names of their own, versions may come in another order."""
        if self.run.laboratory.constant_ids or self.run.laboratory.clocks:
            return max(records, key=lambda each: each.sequence)
        return next(each for each in records if each.message == newest.message)


def _has_job(uow: UnitOfWork, report: ReportRecord) -> bool:
    """Whether a result that has an order will be matched again."""
    found = uow.jobs.list_for_order(OrderKey(report.order or ""))
    return any(job.target == report.key and job.state in OPEN_JOBS for job in found)
