"""Results by command: the match desk, the mapping tables, and all that waits for one cause."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent import bootstrap
from lab_agent.lis.lab_messages import LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.serialization import dump_message
from lab_agent.orders.records import LineRecord
from lab_agent.queue import jobs
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind, NewJob
from lab_agent.results.mapping_loader import MappingCache
from lab_agent.results.records import HoldReason
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.root import load_settings
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId, report_key
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.shared.values import Coding
from lab_agent.store.event_records import Event
from lab_agent.store.read_models import DOCUMENT_ORPHAN_ACTION
from tests.harness.clock import VirtualClock
from tests.harness.paths import CATALOGUE
from tests.harness.results import make_report
from tests.integration.cli.conftest import Cli, LaboratoryFolder, make_order, make_received

NOW = datetime(2026, 3, 3, tzinfo=UTC)
ORDER = OrderKey("RORDER")


@pytest.fixture
def mapped(lab: Any) -> Any:
    """A laboratory with tables that know one code, and an order at the LIS."""
    folder = lab.folder / "mappings"
    folder.mkdir()
    (folder / "codes.csv").write_text("code,loinc\nHGB,718-7\n")
    lab.config.write_text(lab.config.read_text() + f'[results]\nmappings = "{folder}"\n')
    order = make_order(ORDER, state=OrderState.HANDED_OVER, patient_reference="patient/1")
    line = LineRecord(
        key=LineKey("L1"), order=ORDER, task_id=ResourceId("lt"), procedure_request_id=ResourceId("pr"), item="001.001",
        state=LineState.ACCEPTED, changed_at=NOW,
    )  # fmt: skip
    lab.write(lambda uow: (uow.orders.add(order), uow.orders.add_line(line)))
    return lab


def arrive(lab: Any, name: str, code: str, order: str = ORDER) -> ReportKey:
    """A report comes in, and is matched as the daemon would."""
    value = ReportedObservation(code=Coding(code=code), value_string="x")
    report = LabReport(report_id=name, status=ReportStatus.FINAL, order=order, effective=NOW, issued=NOW, observations=(value,))

    class Once:
        async def transact(self, work: Any) -> Any:
            return await asyncio.to_thread(lab.write, work)

    asyncio.run(StoreInbox(Once(), VirtualClock(NOW), "folder").accept(name, report))  # type: ignore[arg-type]
    settings = load_settings(lab.config)
    key = report_key("folder", name)
    lab.write(
        lambda uow: bootstrap.build_matcher(settings, MappingCache(settings.results.mappings), lambda: None).match(uow, key, NOW)
    )
    return key


def test_unmapped_code_found_mapped_and_released(cli: Any, mapped: Any) -> None:
    key = arrive(mapped, "one", "NEW")
    assert cli("results", "list").code == 0  # and what the arrival logged is out of the way
    assert [row["state"] for row in cli("results", "list", "--waiting", "--json").json()] == ["unmapped"]
    checked = cli("mappings", "check")
    assert (checked.code, "NEW" in checked.out) == (1, True)
    assert "add the missing rows" in cli("results", "show", key).out
    with (mapped.folder / "mappings" / "codes.csv").open("a") as table:
        table.write("NEW,6690-2\n")
    assert [row["state"] for row in cli("mappings", "release", "--preview", "--json").json()] == ["matched"]
    assert [row["state"] for row in cli("results", "list", "--waiting", "--json").json()] == ["unmapped"]
    assert [row["state"] for row in cli("mappings", "release", "--by", "ann", "--json").json()] == ["matched"]
    duties = mapped.write(lambda uow: uow.jobs.list_for_order(ORDER))
    assert [job.kind for job in duties] == [JobKind.DELIVER_REPORT]
    assert cli("mappings", "check").code == 0


def test_unmapped_catalogue_codes_listed(cli: Any, mapped: Any) -> None:
    """The catalogue that counts is the store's, wherever it came from; the folder of the settings may hold another."""
    assert cli("mappings", "check", "--json").json()["catalogue"] == []
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    lacking = cli("mappings", "check", "--json").json()["catalogue"]
    with (mapped.folder / "mappings" / "codes.csv").open("a") as table:
        table.write(f"{lacking[0]},6690-2\n")
    assert cli("mappings", "check", "--json").json()["catalogue"] == lacking[1:]
    (mapped.folder / "mappings" / "codes.csv").write_text("code,loinc\nHGB,718-8\n")
    checked = cli("mappings", "check")
    assert (checked.code, "codes.csv row 2, column loinc" in checked.err) == (1, True)


def test_unmatched_report_matched_and_another_dismissed(cli: Any, mapped: Any) -> None:
    lost, other = arrive(mapped, "lost", "HGB", "RNOBODY"), arrive(mapped, "other", "HGB", "RNOBODY")
    assert cli("results", "release", lost, "--note", "go").code == 1
    assert cli("results", "match", lost, "RWRONG", "--note", "x").code == 1
    done = cli("results", "match", lost, ORDER, "--line", "L1", "--note", "on the form", "--by", "ann")
    assert (done.code, "is matched now" in done.out) == (0, True)
    gone = cli("results", "dismiss", other, "--note", "a test", "--by", "ann", "--json").json()
    assert gone["reason"] == "dismissed by ann: a test"
    again = cli("results", "dismiss", other, "--note", "twice")
    assert (again.code, "does not wait" in again.err) == (1, True)
    history = cli("results", "show", other, "--json").json()["history"]
    told = ("ann", f"result {other} dismissed (a test): it is dismissed now")
    assert [(each["by"], each["text"]) for each in history][1:] == [told]


def test_decision_without_reason_is_wrong_usage(cli: Any, mapped: Any) -> None:
    """What a reason may be is decided in one place; each command asks for one."""
    key = arrive(mapped, "lost", "HGB", "RNOBODY")
    for decision in (
        *(f"results dismiss {key} --note", f"results release {key} --note", f"results match {key} {ORDER} --note"),
        *("outbox dismiss 1 --note", "outbox done 1 --note", f"orders refuse {ORDER} --reason", "orders refuse-line L1 --reason"),
    ):
        done = cli(*decision.split(), "  ")
        assert (done.code, "Nothing was changed" in done.err) == (2, True), decision
    assert cli("results", "show", key, "--json").json()["state"] == "unmatched"


def test_orphaned_documents_listed_newest_first(cli: Any, mapped: Any) -> None:
    assert "No document was left" in cli("results", "orphans").out
    for day, action in enumerate((DOCUMENT_ORPHAN_ACTION, DOCUMENT_ORPHAN_ACTION, "delivered"), start=1):
        event = Event(order=ORDER, report=ReportKey("P1"), at=NOW + timedelta(days=day), action=action, text=f"copy {day}")
        mapped.write(lambda uow, event=event: uow.events.add(event))
    rows = cli("results", "orphans", "--json").json()
    assert [(row["order"], row["result"], row["what"]) for row in rows] == [(ORDER, "P1", "copy 2"), (ORDER, "P1", "copy 1")]


def test_upload_again_takes_an_order_or_a_time(mapped: Any, cli: Any) -> None:
    arrive(mapped, "a", "HGB")  # matched, and not delivered yet
    assert cli("results", "list").code == 0  # and what the arrival logged is out of the way
    for asked, is_taken in (
        ("", False),
        (f"{ORDER} --since 2026-03-01", False),
        ("--until 2026-03-01", False),
        (ORDER, True),
        ("--since 2026-03-01", True),
    ):
        done = cli("results", "upload-again", *asked.split(), "--note", "restored", "--json")
        assert (done.code == 0) is is_taken, asked
        assert not is_taken or done.json() == {"results": 0}


def add_failed_jobs(lab: LaboratoryFolder, kind: JobKind, number: int, *, adapter: str = "") -> None:
    """Jobs that were set aside, as a laboratory system or the service rejected them."""

    def write(uow: Any) -> None:
        for each in range(number):
            name = f"{kind}-{adapter}-{each}"
            job = NewJob(kind=kind, dedup_key=name, ordering_key=name, target=name, order=None, system=adapter, due_at=NOW)
            uow.jobs.add(job)
        for taken in uow.jobs.claim({frozenset(JobKind): 99}, owner="w", now=NOW, lease=timedelta(hours=1)):
            uow.jobs.save(taken.dead_letter(NOW, "rejected", FailureCause.WRITE_REJECTED))

    lab.write(write)


def add_held_orders(lab: LaboratoryFolder, cause: str, number: int) -> list[OrderKey]:
    keys = [OrderKey(f"R{cause}{each}") for each in range(number)]
    for key in keys:
        order = make_order(key, state=OrderState.HELD, reason="why", held_since=NOW, hold_cause=cause)
        later = replace(jobs.fetch_order(key, NOW), due_at=datetime.now(UTC) + timedelta(hours=1))
        lab.write(lambda uow, order=order, later=later: (uow.orders.add(order), uow.jobs.add(later)))
    return keys


def add_waiting_results(lab: LaboratoryFolder, state: ReportState, reason: HoldReason | None, number: int) -> None:
    for each in range(number):
        name = f"{reason or state}-{each}"
        body = dump_message(make_report(report_id=name, order="RNOBODY"))
        report = make_received(name, report_id=name, state=state, hold_reason=reason, reason="why", body=body)
        lab.write(lambda uow, report=report: uow.reports.add(report))


def job_states(cli: Cli) -> list[JobState]:
    return [JobState(each["state"]) for each in cli("outbox", "list", "--all", "--json").json()]


def test_jobs_of_a_cause_are_retried_after_a_question(cli: Cli, lab: LaboratoryFolder) -> None:
    add_failed_jobs(lab, JobKind.UPDATE_LINE_TASK, 3)
    command = ("outbox", "retry", "--cause", "write_rejected")
    refused = cli(*command)
    assert (refused.code, "add --yes if you are sure" in refused.err) == (2, True), "nobody can be asked"
    assert "3 × update_line_task: each" in refused.out
    assert cli(*command, stdin="n\n", terminal=True).code == 1
    assert set(job_states(cli)) == {JobState.DEAD_LETTER}
    done = cli(*command, stdin="y\n", terminal=True)
    assert (done.code, "done: 3" in done.out) == (0, True)
    assert set(job_states(cli)) == {JobState.DUE}


def test_unknown_cause_is_wrong_usage(cli: Cli, lab: LaboratoryFolder) -> None:
    for command, hint in (
        ("outbox retry --cause write_rejectd", "did you mean 'write_rejected'?"),
        ("outbox dismiss --note x --cause nonsense", "`lab-agent status` lists what fails"),
        ("orders retry --cause no_contrct", "did you mean 'no_contract'?"),
        ("orders release --note x --cause tube.label-time", "did you mean 'tube.label-times'?"),
        ("results release --note x --cause questoin", "did you mean 'question'?"),
        ("results dismiss --note x --cause nonsense", "there are conflicting_version, defect, "),
        ("outbox retry", "either the number of a job or --cause"),
        ("orders retry R1 --cause no_contract", "either the key of an order or --cause"),
    ):
        done = cli(*command.split(), "--yes")
        assert (done.code, hint in done.err, "Nothing was changed" in done.err) == (2, True, True), command


def test_held_orders_of_a_cause_are_assessed_now(cli: Cli, lab: LaboratoryFolder) -> None:
    assert "Nothing to do." in cli("orders", "retry", "--cause", "no_contract").out
    keys = add_held_orders(lab, "no_contract", 2)
    done = cli("orders", "retry", "--cause", "no_contract", "--yes", "--by", "ann")
    assert "2 × order: each is read again and assessed now" in done.out
    assert "done: 2" in done.out
    events = cli("orders", "show", keys[0], "--json").json()["timeline"]
    assert [each["by"] for each in events if each["by"]] == ["ann"]


def test_results_of_a_cause_are_dismissed(cli: Cli, lab: LaboratoryFolder) -> None:
    add_waiting_results(lab, ReportState.UNMATCHED, None, 2)
    add_waiting_results(lab, ReportState.HELD, HoldReason.QUESTION, 1)
    dismiss = ("results", "dismiss", "--cause", "unmatched", "--note", "tests of the analyser")
    refused = cli(*dismiss)
    assert (refused.code, "2 × result: each is never delivered" in refused.out) == (2, True)
    assert cli(*dismiss, "--yes", "--json").json() == {"done": 2, "left_out": []}
    assert [each["cause"] for each in cli("results", "list", "--waiting", "--json").json()] == ["question"]


def test_jobs_of_one_system_or_kind_are_dismissed(cli: Cli, lab: LaboratoryFolder) -> None:
    for adapter in ("chemistry", "serology"):
        add_failed_jobs(lab, JobKind.CANCEL_AT_LIS, 2, adapter=adapter)
    add_failed_jobs(lab, JobKind.UPDATE_LINE_TASK, 1)
    dismiss = ("outbox", "dismiss", "--cause", "write_rejected", "--note", "by hand", "--yes", "--json")
    assert cli(*dismiss, "--system", "chemistry").json() == {"done": 2, "left_out": []}
    assert cli(*dismiss, "--kind", "update_line_task").json() == {"done": 1, "left_out": []}
    assert cli(*dismiss, "--system", "chemistry").json() == {"done": 0, "left_out": []}
    assert sorted(job_states(cli)) == [JobState.DEAD_LETTER] * 2 + [JobState.DISMISSED] * 3


def test_what_needs_a_look_is_not_released_together(cli: Cli, lab: LaboratoryFolder) -> None:
    for cause in ("tube.label-in-use", "no_contract"):
        add_held_orders(lab, cause, 2)
        done = cli("orders", "release", "--cause", cause, "--note", "go", "--yes")
        assert (done.code, "2 left as they are: " in done.out) == (0, True), done
    assert len(cli("orders", "list", "--state", "held", "--json").json()) == 4
