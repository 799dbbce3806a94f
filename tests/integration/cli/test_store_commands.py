"""Commands on the store: orders, outbox, results, systems; tables for people, JSON for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.orders.records import LineRecord, WorkOrder
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind, NewJob, ServiceMessage
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import JobState, LineState, ReportState, WorkOrderState
from lab_agent.shared.values import Identifier
from lab_agent.store.event_records import Event
from tests.harness.paths import CATALOGUE
from tests.integration.cli.conftest import SEEN as NOW
from tests.integration.cli.conftest import Cli, LaboratoryFolder, make_order, make_received

ORDER, OTHER, LINE, REPORT = OrderKey("RAAA"), OrderKey("RBBB"), LineKey("LAAA"), ReportKey("PAAA")
BODY = b'{"kind":"report","value":1.20}'


def effect(kind: JobKind, once: str, **fields: Any) -> NewJob:
    payload = {"adapter": "folder", "reopened": 0} if kind is JobKind.SUBMIT_ORDER else {}
    return NewJob(kind=kind, dedup_key=once, ordering_key=once, target=ORDER, order=ORDER, payload=payload, due_at=NOW, **fields)


def seed(uow) -> None:
    requisition, reason = Identifier(system="s", value="REQ-1"), "waiting for the second look"
    uow.orders.add(make_order(ORDER, contract="C-100", reason=reason, requisition=requisition))
    uow.orders.add(make_order(OTHER, seen_at=NOW + timedelta(hours=1), contract="C-200"))
    line = LineRecord(key=LINE, order=ORDER, task_id="task-3", item="042.036", state=LineState.REJECTED, changed_at=NOW)
    uow.orders.add_line(replace(line, outputs=("no label on the tube",), adapter="micro"))
    part = WorkOrder(order=ORDER, adapter="micro", state=WorkOrderState.HANDED_OVER, changed_at=NOW, accession="M-7")
    uow.orders.save_work_order(part)
    uow.events.add(Event(order=ORDER, at=NOW, action="seen", text="order seen", by=None))
    uow.jobs.add(effect(JobKind.FETCH_ORDER, "look"))
    uow.jobs.add(effect(JobKind.SUBMIT_ORDER, "handover"))
    uow.reports.add(make_received(REPORT, report_id="R-1", state=ReportState.RECEIVED, order=ORDER, body=BODY))


def doubtful(uow) -> None:
    """The handover becomes doubtful: nobody can tell whether the LIS has it."""
    uow.orders.save_work_order(WorkOrder(order=ORDER, adapter="folder", changed_at=NOW))
    (found,) = [each for each in uow.jobs.list_for_order(ORDER) if each.kind is JobKind.SUBMIT_ORDER]
    (claimed,) = uow.jobs.claim({frozenset([JobKind.SUBMIT_ORDER]): 1}, owner="w", now=NOW, lease=timedelta(minutes=1))
    assert claimed.id == found.id
    uow.jobs.save(claimed.needs_review(NOW, "nobody can tell"))


@pytest.fixture
def seeded(lab):
    lab.write(seed)
    return lab


def number(cli, kind: str) -> str:
    return str(next(each["job"] for each in cli("outbox", "list", "--json").json() if each["kind"] == kind))


def test_orders_listed_newest_first_filtered_and_paged(cli, seeded):
    assert [order["order"] for order in cli("orders", "list", "--json").json()] == [OTHER, ORDER]
    lines = cli("orders", "list").out.splitlines()
    assert lines[0].split()[:4] == ["order", "state", "contract", "requisition"]
    assert "waiting for the second look" in lines[2], "what is piped is not broken into lines"
    assert [order["order"] for order in cli("orders", "list", "--search", "REQ-1", "--json").json()] == [ORDER]
    assert cli("orders", "list", "--state", "closed", "--json").json() == []
    assert cli("orders", "list", "--state", "closed").out == "No orders.\n"
    done = cli("orders", "list", "--limit", "1", "--json")
    assert (len(done.json()), "1 of 2 shown; continue with --offset 1" in done.err) == (1, True)


def test_order_shown_with_lines_jobs_results_timeline(cli, seeded):
    shown = cli("orders", "show", ORDER).out
    for part in ("REQ-1", "no label on the tube", "042.036", "submit_order", "R-1", "order seen", "micro", "handed_over", "M-7"):
        assert part in shown
    detail = cli("orders", "show", ORDER, "--json").json()
    assert (detail["requisition"], detail["lines"][0]["output"]) == ("REQ-1", ["no label on the tube"])


def test_unknown_key_gives_one_sentence_and_exit_1(cli, seeded):
    for args in ("orders show RX", "outbox retry 999", "outbox show 999", "results show PX", "orders retry RX"):
        done = cli(*args.split())
        assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert "Traceback" not in done.err


def test_retry_reports_what_it_does_and_asks_where_it_is_unsafe(cli, seeded):
    done = cli("outbox", "retry", number(cli, "fetch_order"))
    assert (done.code, "fetches and assesses" in done.out, "is due now" in done.out) == (0, True, True)
    seeded.write(doubtful)
    handover = number(cli, "submit_order")
    refused = cli("outbox", "retry", handover)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert next(e for e in cli("outbox", "list", "--json").json() if str(e["job"]) == handover)["state"] == JobState.NEEDS_REVIEW
    assert cli("outbox", "retry", handover, "--yes", "--by", "anna").code == 0
    assert cli("orders", "show", ORDER, "--json").json()["timeline"][-1]["by"] == "anna"
    jobs = cli("orders", "retry", ORDER, "--json").json()
    assert {each["kind"] for each in jobs} == {"fetch_order", "submit_order"}


def test_uncertain_job_dismissed_with_reason(cli, seeded):
    seeded.write(doubtful)
    handover = number(cli, "submit_order")
    assert cli("outbox", "dismiss", handover).code == 2, "a reason is needed"
    assert cli("outbox", "dismiss", handover, "--note", "patient went home").code == 0
    ended = {str(each["job"]): each["state"] for each in cli("outbox", "list", "--all", "--json").json()}
    assert ended[handover] == "dismissed"


def test_results_shown_with_exact_digits(cli, seeded):
    (listed,) = cli("results", "list", "--state", "received", "--json").json()
    assert (listed["result"], listed["state"], listed["from"]) == (REPORT, "received", "folder")
    done = cli("results", "show", REPORT, "--json")
    assert (json.loads(done.out)["content"]["kind"], "1.20" in done.out) == ("report", True)
    assert "1.20" in cli("results", "show", REPORT).out


def failing(uow) -> None:
    """The fetch fails since an hour, and the service said why."""
    (found,) = [each for each in uow.jobs.list_for_order(ORDER) if each.kind is JobKind.SUBMIT_ORDER]
    job = found.failed(NOW, FailureCause.OUTCOME_UNKNOWN)
    uow.jobs.save(job)
    for attempt, text in enumerate(("busy", "error processing: Anna Sample is unknown"), start=1):
        message = ServiceMessage(at=NOW, text=text, attempt=attempt, answer="POST was answered with 422")
        uow.vault.save_service_message(job.id, ORDER, message)


def test_job_shown_with_cause_and_service_words(cli, seeded):
    """What the service said is shown for one job, on request, and in no list."""
    plain = cli("outbox", "show", number(cli, "fetch_order"))
    assert (plain.code, "service said" in plain.out) == (0, False)
    seeded.write(failing)
    job = number(cli, "submit_order")
    shown = cli("outbox", "show", job).out
    for part in ("submit_order", "outcome_unknown", "does not confirm", "hands the order", "Anna Sample is unknown"):
        assert part in shown
    as_json = cli("outbox", "show", job, "--json").json()
    assert (as_json["service_said"], as_json["failing_since"]) == (
        "error processing: Anna Sample is unknown",
        NOW.isoformat(),
    )
    assert as_json["said_before"].endswith("422: busy")
    assert "attempt 2: POST was answered with 422. The service said: error processing" in cli("orders", "show", ORDER).out
    for args in (("outbox", "list", "--json"), ("outbox", "list"), ("orders", "show", ORDER, "--json")):
        assert "Anna Sample" not in cli(*args).out


def test_purge_is_counted_then_done(cli, lab):
    old = datetime.now(UTC) - timedelta(days=40)
    lab.write(lambda uow: uow.vault.save_document(b"%PDF", "application/pdf", at=old))
    counted = {each["name"]: each for each in cli("purge", "--dry-run", "--json").json()["classes"]}
    assert counted["documents"]["number"] == 1
    assert cli("purge").code == 2
    assert cli("purge", "--yes", "--json").json()["documents"] == 1
    (noted,) = cli("audit", "list", "--json").json()
    assert (noted["action"], noted["details"]) == ("data_purged", '{"documents":1}')


@pytest.mark.parametrize("left", ["lab.db.mark", "lab.db.lock", "lab.db-wal"])
def test_no_new_database_in_place_of_a_lost_one(cli, lab, left):
    (lab.folder / "lab.db").unlink()
    (lab.folder / left).write_bytes(b"")
    assert cli("db", "upgrade").code == 1
    assert not (lab.folder / "lab.db").exists()


def test_database_is_made_upgraded_and_compacted(cli, lab):
    (lab.folder / "lab.db").unlink()
    assert str(lab.folder / "lab.db") in cli("db", "upgrade").out
    again = cli("db", "upgrade").out
    assert (str(lab.folder) in again, "has the current schema" in again) == (False, True)
    assert cli("orders", "list", "--json").json() == []
    assert "bytes" in cli("db", "compact", "--yes").out
    assert [each["action"] for each in cli("audit", "list", "--json").json()] == ["database_compacted"]


@pytest.mark.slow
@pytest.mark.parametrize("is_asked", [False, True])
def test_database_moves_to_postgresql(cli, seeded, lab, postgres_url, is_asked):
    """What the commands said of it before they say then; whoever did it is in the audit, whose chain goes on."""
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    assert cli("user", "add", "anna", "--role", "admin", stdin="correct horse battery\n").code == 0
    looks = [
        each.split() for each in ("user list --json", f"orders show {ORDER} --json", "outbox list --json", "eta list --json")
    ]
    before = [cli(*each).out for each in looks]
    assert all(before)
    given = ["--by", "carla"] if is_asked else ["--to", postgres_url, "--by", "carla"]
    copied = cli("db", "copy", *given, stdin=f"{postgres_url}\n" if is_asked else "")
    assert copied.code == 0, copied.err
    lab.config.write_text(lab.config.read_text().replace('url = "sqlite:///lab.db"', f'url = "{postgres_url}"'))
    assert [cli(*each).out for each in looks] == before
    (newest, *_) = cli("audit", "list", "--json").json()
    assert (newest["action"], newest["actor"]) == ("database_copied", "carla")
    assert cli("audit", "verify", "--json").json()["broken"] is None
    again = cli("db", "copy", "--to", postgres_url)
    assert again.code == 2, "it is PostgreSQL already"


def claim(uow: Any) -> int:
    kinds = frozenset({JobKind.SUBMIT_ORDER})
    return len(uow.jobs.claim({kinds: 9}, owner="w", now=datetime.now(UTC), lease=timedelta(minutes=1)))


def test_pauses_and_resumes_a_system(cli: Cli, lab: LaboratoryFolder) -> None:
    lab.write(lambda uow: uow.jobs.add(effect(JobKind.SUBMIT_ORDER, "handover", system="folder")))
    done = cli("adapter", "pause", "folder", "--reason", "a new server", "--by", "ana")
    assert (done.code, "lab-agent adapter resume folder" in done.out) == (0, True)
    assert lab.write(claim) == 0
    assert "folder is paused, by ana since" in cli("outbox", "show", "1").out
    assert "The laboratory system folder is paused" in cli("status").out
    again = cli("adapter", "pause", "folder", "--reason", "again")
    assert (again.code, "paused already, by ana" in again.err) == (1, True)
    assert cli("adapter", "resume", "folder", "--reason", "it runs", "--by", "eve").code == 0
    assert cli("outbox", "show", "1", "--json").json()["waits_for"] is None
    assert lab.write(claim) == 1
    assert cli("adapter", "resume", "folder", "--reason", "again").code == 1
    listed = cli("audit", "list").out
    assert ("adapter_paused" in listed, "adapter_resumed" in listed, "a new server" in listed) == (True, True, False)


def test_unknown_system_and_missing_reason_change_nothing(cli: Cli, lab: LaboratoryFolder) -> None:
    unknown = cli("adapter", "pause", "foldr", "--reason", "x")
    assert (unknown.code, "did you mean 'folder'?" in unknown.err) == (2, True)
    assert cli("adapter", "pause", "folder", "--reason", " ").code == 2
    assert cli("adapter", "pause", "folder").code == 2
    assert cli("adapter", "resume", "folder", "--reason", "x").code == 1
