"""Commands on the store: orders, outbox, results, users; tables for people, JSON for programs."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.job_records import JobKind, NewJob, ServiceMessage
from lab_agent.domain.records import Event, LineRecord, OrderRecord
from lab_agent.domain.report_records import ReportRecord
from lab_agent.domain.state_machines import JobState, LineState, ReportState, WorkOrderState
from lab_agent.domain.values import Identifier
from lab_agent.domain.work_orders import WorkOrder
from tests.harness.paths import CATALOGUE

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ORDER, OTHER, LINE, REPORT = OrderKey("RAAA"), OrderKey("RBBB"), LineKey("LAAA"), ReportKey("PAAA")


def effect(kind: JobKind, once: str) -> NewJob:
    payload = {"adapter": "folder", "reopened": 0} if kind is JobKind.SUBMIT_ORDER else {}
    return NewJob(kind=kind, dedup_key=once, ordering_key=once, target=ORDER, order=ORDER, payload=payload, due_at=NOW)


def seed(uow) -> None:
    uow.orders.add(
        OrderRecord(
            key=ORDER,
            task_id="task-1",
            seen_at=NOW,
            changed_at=NOW,
            contract="C-100",
            requisition=Identifier(system="s", value="REQ-1"),
            reason="waiting for the second look",
        )
    )
    uow.orders.add(OrderRecord(key=OTHER, task_id="task-2", seen_at=NOW + timedelta(hours=1), changed_at=NOW, contract="C-200"))
    uow.orders.add_line(
        LineRecord(
            key=LINE,
            order=ORDER,
            task_id="task-3",
            item="042.036",
            state=LineState.REJECTED,
            changed_at=NOW,
            outputs=("no label on the tube",),
            adapter="micro",
        )
    )
    uow.orders.save_work_order(
        WorkOrder(order=ORDER, adapter="micro", state=WorkOrderState.HANDED_OVER, changed_at=NOW, accession="M-7")
    )
    uow.events.add(Event(order=ORDER, at=NOW, action="seen", text="order seen", by=None))
    uow.jobs.add(effect(JobKind.FETCH_ORDER, "look"))
    uow.jobs.add(effect(JobKind.SUBMIT_ORDER, "handover"))
    uow.reports.add(
        ReportRecord(
            key=REPORT,
            source="folder",
            message="r1.json",
            report_id="R-1",
            state=ReportState.RECEIVED,
            received_at=NOW,
            changed_at=NOW,
            body=b'{"kind":"report","value":1.20}',
            order=ORDER,
        )
    )


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


def test_orders_listed_newest_first(cli, seeded):
    """Orders are listed newest first, as a table for people and as JSON for programs."""
    assert [order["order"] for order in cli("orders", "list", "--json").json()] == [OTHER, ORDER]
    done = cli("orders", "list")
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["order", "state", "contract", "requisition"]
    assert "waiting for the second look" in lines[2], "what is piped is not broken into lines"


def test_orders_found_and_filtered(cli, seeded):
    assert [order["order"] for order in cli("orders", "list", "--search", "REQ-1", "--json").json()] == [ORDER]
    assert cli("orders", "list", "--state", "closed", "--json").json() == []
    assert cli("orders", "list", "--state", "closed").out == "No orders.\n"


def test_truncated_list_says_there_is_more(cli, seeded):
    done = cli("orders", "list", "--limit", "1", "--json")
    assert len(done.json()) == 1
    assert "1 of 2 shown; continue with --offset 1" in done.err


def test_order_shown_with_lines_jobs_results_timeline(cli, seeded):
    shown = cli("orders", "show", ORDER).out
    for part in ("REQ-1", "no label on the tube", "042.036", "submit_order", "R-1", "order seen"):
        assert part in shown
    assert "Laboratory systems" in shown
    for part in ("micro", "handed_over", "M-7", "1/1"):
        assert part in shown
    detail = cli("orders", "show", ORDER, "--json").json()
    assert detail["requisition"] == "REQ-1"
    assert detail["lines"][0]["output"] == ["no label on the tube"]


def test_unknown_key_gives_one_sentence_and_exit_1(cli, seeded):
    for args in (
        ("orders", "show", "RX"),
        ("outbox", "retry", "999"),
        ("outbox", "show", "999"),
        ("results", "show", "PX"),
        ("orders", "retry", "RX"),
    ):
        done = cli(*args)
        assert (done.code, done.out) == (1, "")
        assert len(done.err.splitlines()) == 1
        assert "Traceback" not in done.err


def test_retry_reports_what_it_does(cli, seeded):
    done = cli("outbox", "retry", number(cli, "fetch_order"))
    assert done.code == 0
    assert "fetches and assesses" in done.out
    assert "is due now" in done.out


def test_unsafe_retry_needs_confirmation(cli, seeded):
    """A retry that could do something twice needs a yes."""
    seeded.write(doubtful)
    handover = number(cli, "submit_order")
    refused = cli("outbox", "retry", handover)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert next(e for e in cli("outbox", "list", "--json").json() if str(e["job"]) == handover)["state"] == JobState.NEEDS_REVIEW
    assert cli("outbox", "retry", handover, "--yes", "--by", "anna").code == 0
    timeline = cli("orders", "show", ORDER, "--json").json()["timeline"]
    assert timeline[-1]["by"] == "anna"


def test_uncertain_job_dismissed_with_reason(cli, seeded):
    seeded.write(doubtful)
    handover = number(cli, "submit_order")
    assert cli("outbox", "dismiss", handover).code == 2, "a reason is needed"
    assert cli("outbox", "dismiss", handover, "--note", "patient went home").code == 0
    assert handover not in {str(each["job"]) for each in cli("outbox", "list", "--json").json()}
    ended = {str(each["job"]): each["state"] for each in cli("outbox", "list", "--all", "--json").json()}
    assert ended[handover] == "dismissed"


def test_whole_order_retried(cli, seeded):
    jobs = cli("orders", "retry", ORDER, "--json").json()
    assert {each["kind"] for each in jobs} == {"fetch_order", "submit_order"}


def test_results_shown_with_exact_digits(cli, seeded):
    (listed,) = cli("results", "list", "--json").json()
    assert (listed["result"], listed["state"], listed["from"]) == (REPORT, "received", "folder")
    assert "R-1" in cli("results", "list", "--state", "received").out
    done = cli("results", "show", REPORT, "--json")
    assert json.loads(done.out)["content"]["kind"] == "report"
    assert "1.20" in done.out
    assert "1.20" in cli("results", "show", REPORT).out


def test_users_added_and_removed(cli, lab):
    assert "add one with" in cli("user", "list").out
    assert cli("user", "add", "Anna", "--role", "admin", stdin="correct horse battery\n").code == 0
    (user,) = cli("user", "list", "--json").json()
    assert (user["name"], user["role"]) == ("anna", "admin")
    assert "hash" not in json.dumps(user)
    assert "anna" in cli("user", "list").out
    again = cli("user", "add", "anna", stdin="correct horse battery\n")
    assert again.code == 1
    assert cli("user", "remove", "anna").code == 0
    assert cli("user", "remove", "anna").code == 1


def test_short_password_rejected(cli, lab):
    done = cli("user", "add", "anna", stdin="short\n")
    assert done.code == 1
    assert "password" in done.err
    assert "short\n" not in done.out


def failing(uow) -> None:
    """The fetch fails since an hour, and the service said why."""
    (found,) = [each for each in uow.jobs.list_for_order(ORDER) if each.kind is JobKind.SUBMIT_ORDER]
    job = found.failed(NOW, FailureCause.OUTCOME_UNKNOWN)
    uow.jobs.save(job)
    for attempt, text in enumerate(("busy", "error processing: Anna Sample is unknown"), start=1):
        uow.vault.save_service_message(
            job.id, ORDER, ServiceMessage(at=NOW, text=text, attempt=attempt, answer="POST was answered with 422")
        )


def test_job_shown_with_cause_and_service_words(cli, seeded):
    """What the service said is shown for one job, on request, and in no list."""
    seeded.write(failing)
    job = number(cli, "submit_order")
    shown = cli("outbox", "show", job)
    assert shown.code == 0
    for part in ("submit_order", "outcome_unknown", "does not confirm", "hands the order", "Anna Sample is unknown"):
        assert part in shown.out
    as_json = cli("outbox", "show", job, "--json").json()
    assert as_json["service_said"] == "error processing: Anna Sample is unknown"
    assert as_json["said_before"].startswith("attempt 1 at ")
    assert as_json["said_before"].endswith("422: busy")
    assert as_json["failing_since"] == NOW.isoformat()
    assert "attempt 2: POST was answered with 422. The service said: error processing" in cli("orders", "show", ORDER).out
    for args in (("outbox", "list", "--json"), ("outbox", "list"), ("orders", "show", ORDER, "--json")):
        assert "Anna Sample" not in cli(*args).out


def test_job_without_service_words_is_shown(cli, seeded):
    shown = cli("outbox", "show", number(cli, "fetch_order"))
    assert (shown.code, "service said" in shown.out) == (0, False)


def test_purge_is_counted_then_done(cli, lab):
    old = datetime.now(UTC) - timedelta(days=40)
    lab.write(lambda uow: uow.vault.save_document(b"%PDF", "application/pdf", at=old))
    counted = {each["name"]: each for each in cli("purge", "--dry-run", "--json").json()["classes"]}
    assert counted["documents"]["number"] == 1
    assert "documents" in cli("purge", "--dry-run").out
    assert cli("purge").code == 2
    assert cli("purge", "--yes", "--json").json()["documents"] == 1
    (noted,) = cli("audit", "list", "--json").json()
    assert (noted["action"], noted["details"]) == ("data_purged", '{"documents":1}')
    assert "Removed" not in cli("purge", "--yes").out


def test_new_database_is_told_with_its_whole_path(cli, lab):
    (lab.folder / "lab.db").unlink()
    assert str(lab.folder / "lab.db") in cli("db", "upgrade").out
    assert str(lab.folder) not in cli("db", "upgrade").out


@pytest.mark.parametrize("left", ["lab.db.mark", "lab.db.lock", "lab.db-wal"])
def test_no_new_database_in_place_of_a_lost_one(cli, lab, left):
    (lab.folder / "lab.db").unlink()
    (lab.folder / left).write_bytes(b"")
    assert cli("db", "upgrade").code == 1
    assert not (lab.folder / "lab.db").exists()


def test_database_is_compacted(cli, lab):
    assert "has the current schema" in cli("db", "upgrade").out
    assert "bytes" in cli("db", "compact", "--yes").out
    assert [each["action"] for each in cli("audit", "list", "--json").json()] == ["database_compacted"]


@pytest.mark.parametrize("is_asked", [False, True])
def test_database_moves_to_postgresql(cli, seeded, lab, postgres_url, is_asked):
    """What the commands said of it before they say then; whoever did it is in the audit, whose chain goes on."""
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    assert cli("user", "add", "anna", "--role", "admin", stdin="correct horse battery\n").code == 0
    looks = (
        ["user", "list", "--json"],
        ["orders", "show", ORDER, "--json"],
        ["outbox", "list", "--json"],
        ["eta", "list", "--json"],
    )
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
