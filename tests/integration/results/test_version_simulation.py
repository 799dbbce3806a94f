"""Random lives of one report: versions in any order, faults, operators. The promises of docs/results.md must hold throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

import pytest

from lab_agent.lis.lab_messages import LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.lis.serialization import load_stored_message
from lab_agent.orders.job_actions import dismiss_job, retry_job
from lab_agent.queue.job_records import JobKind
from lab_agent.results import result_actions
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.ids import ReportKey
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.proof import FIGURES, SHARE
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report, open_bench
from tests.integration.workflow.conftest import parametrize_first

FINAL = {"final", "amended"}
SETTLED = {ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED}


@dataclass
class VersionsRun:
    """One run, repeated exactly by its seed."""

    bench: ResultsBench
    rng: Random
    given_up: set[ReportKey] = field(default_factory=set)
    """Versions that an operator dismissed, or released to be superseded."""

    async def run(self) -> None:
        for version in self.rng.sample(range(1, 6), self.rng.randint(3, 5)):
            self._inject_faults()
            await self.bench.accept(self._message(version))
            for _ in range(self.rng.randrange(6)):
                await self.bench.run_due_jobs()
                await self._check_one_on_its_way()
                if self.rng.random() < 0.25:
                    await self._decide()
                self.bench.clock.time += timedelta(seconds=self.rng.choice([0, 5, 60]))
        await self._run_to_completion()
        await self._check_settled()
        await self._check_nothing_lost()
        await self._check_nothing_taken_back()

    def _message(self, version: int) -> LabReport:
        rng = self.rng
        statuses = [ObservationStatus.FINAL, ObservationStatus.FINAL, ObservationStatus.PRELIMINARY]
        names = rng.sample(["a", "b", "c"], rng.randint(0, 3))
        values = [haemoglobin(str(rng.randint(1, 9)), id=name, status=rng.choice(statuses)) for name in names]
        lines = tuple(rng.sample(["L0", "L1", "L2"], rng.randint(1, 3)))
        absent = (NotPerformed(line=lines[0], reason="clotted"),) if rng.random() < 0.2 or not values else ()
        odd = NOW + timedelta(days=9) if rng.random() < 0.2 else NOW
        status = rng.choice([ReportStatus.FINAL, ReportStatus.FINAL, ReportStatus.PARTIAL])
        report = make_report(version=version, lines=lines, status=status, not_performed=absent, effective=odd)
        return replace(report, observations=tuple(values))

    def _inject_faults(self) -> None:
        kind, status = self.rng.choice([("status", 422), ("status", 503), ("lost_reply", None), (None, None), (None, None)])
        if kind is None:
            self.bench.inject_faults()
            return
        route = self.rng.choice(["POST /fhir/DiagnosticReport", "POST /fhir/Observation", "PUT /fhir/*"])
        more = {"status": status} if status else {}
        self.bench.inject_faults(FaultRule(kind=kind, route=route, count=self.rng.randint(1, 2), **more))

    async def _reports(self) -> Sequence[ReportRecord]:
        return [await self.bench.get_report(f"m{number}") for number in range(1, self.bench.message_count + 1)]

    async def _decide(self) -> None:
        """An operator decides about something that waits, if anything does."""
        who = {"by": "ann", "now": self.bench.clock.now()}
        stuck = [job for job in await self.bench.jobs() if job.state in JOBS_NEEDING_OPERATOR]
        if stuck and self.rng.random() < 0.5:
            job = self.rng.choice(stuck)
            if self.rng.random() < 0.7 or job.kind is not JobKind.DELIVER_REPORT:
                await retry_job(self.bench.store, job.id, **who)
            else:
                await dismiss_job(self.bench.store, job.id, note="wrong", **who)
                self.given_up.add(ReportKey(job.target))
            return
        waiting = [each for each in await self._reports() if each.state in REPORTS_NEEDING_OPERATOR]
        if waiting:
            await self._decide_result(self.rng.choice(waiting), dismiss=self.rng.random() < 0.2)

    async def _decide_result(self, report: ReportRecord, *, dismiss: bool) -> None:
        who = {"by": "ann", "note": "I asked", "now": self.bench.clock.now()}
        if dismiss or report.hold_reason in {HoldReason.SUPERSEDED_BY_NEWER, HoldReason.DEFECT}:
            self.given_up.add(report.key)
        if dismiss or report.hold_reason is HoldReason.DEFECT:
            await result_actions.dismiss_result(self.bench.store, report.key, **who)
        else:
            try:
                await result_actions.release_result(self.bench.store, self.bench.matcher, report.key, **who)
            except InvalidTransitionError:  # another version is on its way: nothing was changed, and the operator tries again
                self.given_up.discard(report.key)

    async def _run_to_completion(self) -> None:
        self.bench.inject_faults()
        for _ in range(30):
            await self.bench.run_until_idle()
            await self._check_one_on_its_way()
            if all(each.state in SETTLED for each in await self._reports()):
                return
            self.bench.clock.time += timedelta(minutes=1)
            await self._settle_something()

    async def _settle_something(self) -> None:
        """Decide what an operator must; what waits for another version has to follow by itself."""
        stuck = [job for job in await self.bench.jobs() if job.state in JOBS_NEEDING_OPERATOR]
        for job in stuck:
            await retry_job(self.bench.store, job.id, by="ann", now=self.bench.clock.now())
        for report in await self._reports():
            if report.state in REPORTS_NEEDING_OPERATOR and report.hold_reason is not HoldReason.WAITS_FOR_VERSION:
                with_reason = await self.bench.store.transact(lambda uow, key=report.key: uow.reports.get_for_update(key))
                if with_reason == report:
                    await self._decide_result(report, dismiss=False)

    # --- what must hold

    async def _check_one_on_its_way(self) -> None:
        stuck = {job.target for job in await self.bench.jobs() if job.state in JOBS_NEEDING_OPERATOR}
        on_their_way = [each.key for each in await self._reports() if each.state is ReportState.MATCHED and each.key not in stuck]
        assert len(on_their_way) <= 1

    async def _check_settled(self) -> None:
        assert [(each.key, each.state, each.reason) for each in await self._reports() if each.state not in SETTLED] == []
        assert [job for job in await self.bench.jobs() if job.kind in {JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT}] == []
        assert [each.state for each in await self._reports()].count(ReportState.DELIVERED) <= 1

    async def _check_nothing_lost(self) -> None:
        """A final value is on the service, unless an operator gave its version up."""
        for report in await self._reports():
            message = load_stored_message(report.body)
            assert isinstance(message, LabReport)
            if report.key in self.given_up:
                continue
            for one in message.observations:
                if one.status is ObservationStatus.FINAL:
                    (*_, last) = await self.bench.resource_versions("Observation", f"RORDER.rep.{one.id}")
                    assert last["status"] in FINAL, one.id

    async def _check_nothing_taken_back(self) -> None:
        """Each resource is there once, and was never final and then not."""
        for kind in ("Observation", "DiagnosticReport"):
            for found in await self.bench.partner.search(kind, {}):
                identifier = found["identifier"][0]["value"]
                statuses = [each["status"] in FINAL for each in await self.bench.resource_versions(kind, identifier)]
                assert statuses == sorted(statuses), identifier


async def simulate(seed: int) -> None:
    rng = Random(seed)
    async with open_bench({"left_out": rng.choice(["hold", "keep"])}) as bench:
        try:
            await VersionsRun(bench, rng).run()
        except (AssertionError, InvalidTransitionError) as exc:
            exc.add_note(f"seed {seed}")
            raise


@parametrize_first("seed", range(20))
async def test_promises_hold_for_versions_in_any_order(seed: int) -> None:
    await simulate(seed)


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_promises_hold_for_many_runs() -> None:
    for seed in range(1000, 1000 + int(1000 * SHARE)):
        await simulate(seed)
        FIGURES.add(lives_of_reports=1)
