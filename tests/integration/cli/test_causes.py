"""All that waits for one cause, decided about by one command: it says first what it does, asks, and does it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lab_agent.domain import jobs
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import OrderKey, ReportKey, ResourceId
from lab_agent.domain.job_records import JobKind, NewJob
from lab_agent.domain.records import OrderRecord
from lab_agent.domain.report_records import HoldReason, ReportRecord
from lab_agent.domain.state_machines import JobState, OrderState, ReportState
from lab_agent.serialization import dump_message
from tests.harness.results import make_report
from tests.integration.cli.conftest import Cli, LaboratoryFolder

NOW = datetime(2026, 3, 3, tzinfo=UTC)


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
        order = OrderRecord(
            key=key, task_id=ResourceId(key), state=OrderState.HELD, seen_at=NOW, changed_at=NOW, reason="why",
            held_since=NOW, hold_cause=cause,
        )  # fmt: skip
        later = replace(jobs.fetch_order(key, NOW), due_at=datetime.now(UTC) + timedelta(hours=1))
        lab.write(lambda uow, order=order, later=later: (uow.orders.add(order), uow.jobs.add(later)))
    return keys


def add_waiting_results(lab: LaboratoryFolder, state: ReportState, reason: HoldReason | None, number: int) -> None:
    for each in range(number):
        name = f"{reason or state}-{each}"
        report = ReportRecord(
            key=ReportKey(name), source="folder", message=name, report_id=name, state=state, hold_reason=reason, reason="why",
            body=dump_message(make_report(report_id=name, order="RNOBODY")), received_at=NOW, changed_at=NOW,
        )  # fmt: skip
        lab.write(lambda uow, report=report: uow.reports.add(report))


def job_states(cli: Cli) -> list[JobState]:
    return [JobState(each["state"]) for each in cli("outbox", "list", "--all", "--json").json()]


def test_causes_are_listed_with_number_age_and_words(cli: Cli, lab: LaboratoryFolder) -> None:
    assert json.loads(cli("status", "--json").out)["numbers"]["causes"] == []
    add_failed_jobs(lab, JobKind.UPDATE_LINE_TASK, 3)
    add_held_orders(lab, "tube.label-in-use", 2)
    found = {each["cause"]: each for each in json.loads(cli("status", "--json").out)["numbers"]["causes"]}
    assert {cause: (each["number"], each["condition"]) for cause, each in found.items()} == {
        "write_rejected": (3, "jobs.write_rejected"),
        "tube.label-in-use": (2, "orders.held"),
    }
    (line,) = (each for each in cli("status").out.splitlines() if each.startswith("cause tube.label-in-use "))
    assert line.endswith("Orders are held: the barcode is in use for another patient")


def test_jobs_of_a_cause_are_retried_after_a_question(cli: Cli, lab: LaboratoryFolder) -> None:
    add_failed_jobs(lab, JobKind.UPDATE_LINE_TASK, 3)
    command = ("outbox", "retry", "--cause", "write_rejected")
    refused = cli(*command)
    assert (refused.code, "add --yes if you are sure" in refused.err) == (2, True), "nobody can be asked"
    assert "3 × update_line_task: each" in refused.out
    declined = cli(*command, stdin="n\n", terminal=True)
    assert (declined.code, "Do this to all 3?" in declined.out + declined.err) == (1, True)
    assert set(job_states(cli)) == {JobState.DEAD_LETTER}
    done = cli(*command, stdin="y\n", terminal=True)
    assert (done.code, "done: 3" in done.out) == (0, True)
    assert set(job_states(cli)) == {JobState.DUE}


def test_jobs_of_one_system_or_kind_are_dismissed(cli: Cli, lab: LaboratoryFolder) -> None:
    for adapter in ("chemistry", "serology"):
        add_failed_jobs(lab, JobKind.CANCEL_AT_LIS, 2, adapter=adapter)
    add_failed_jobs(lab, JobKind.UPDATE_LINE_TASK, 1)
    dismiss = ("outbox", "dismiss", "--cause", "write_rejected", "--note", "by hand", "--yes", "--json")
    assert cli(*dismiss, "--system", "chemistry").json() == {"done": 2, "left_out": []}
    assert cli(*dismiss, "--kind", "update_line_task").json() == {"done": 1, "left_out": []}
    assert cli(*dismiss, "--system", "chemistry").json() == {"done": 0, "left_out": []}
    assert sorted(job_states(cli)) == [JobState.DEAD_LETTER] * 2 + [JobState.DISMISSED] * 3


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


def test_what_needs_a_look_is_not_released_together(cli: Cli, lab: LaboratoryFolder) -> None:
    for cause, why in (
        ("tube.label-in-use", "the tubes of each have to be looked at"),
        ("no_contract", "their cause has to be mended"),
    ):
        add_held_orders(lab, cause, 2)
        done = cli("orders", "release", "--cause", cause, "--note", "go", "--yes")
        assert (done.code, "2 left as they are: " in done.out, why in done.out) == (0, True, True), done
    assert len(cli("orders", "list", "--state", "held", "--json").json()) == 4
    for reason, why in (
        (HoldReason.PATIENT_MISMATCH, "the patient of each has to be compared"),
        (HoldReason.WAITS_FOR_VERSION, "they follow by themselves"),
        (HoldReason.DEFECT, "no release sends what cannot be sent in this form"),
    ):
        add_waiting_results(lab, ReportState.HELD, reason, 2)
        done = cli("results", "release", "--cause", reason, "--note", "go", "--yes")
        assert (done.code, "2 left as they are: " in done.out, why in done.out) == (0, True, True), done
    assert len(cli("results", "list", "--waiting", "--json").json()) == 6


def test_results_of_a_cause_are_dismissed(cli: Cli, lab: LaboratoryFolder) -> None:
    add_waiting_results(lab, ReportState.UNMATCHED, None, 2)
    add_waiting_results(lab, ReportState.HELD, HoldReason.QUESTION, 1)
    dismiss = ("results", "dismiss", "--cause", "unmatched", "--note", "tests of the analyser")
    refused = cli(*dismiss)
    assert (refused.code, "2 × result: each is never delivered" in refused.out) == (2, True)
    assert cli(*dismiss, "--yes", "--json").json() == {"done": 2, "left_out": []}
    assert [each["cause"] for each in cli("results", "list", "--waiting", "--json").json()] == ["question"]
