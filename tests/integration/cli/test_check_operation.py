"""What `lab-agent check` and `lab-agent status` say about operation, from what is in the store and on the machine."""

from __future__ import annotations

import http.server
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.cli.agent_life import process_lives
from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.job_records import JobKind, NewJob
from lab_agent.domain.records import Alert, OrderRecord
from lab_agent.domain.state_machines import OrderState
from lab_agent.domain.workers import WorkerRecord
from lab_agent.errors import StoreUnreachableError
from lab_agent.ports.event_repositories import CREATED_AT_KEY
from lab_agent.store.agent_lock import AgentLock, LockHolder
from tests.harness.clock import DEADLINE
from tests.harness.programs import free_port
from tests.integration.cli.conftest import edit

CHECK, STATUS = ("check", "--offline", "--json"), ("status", "--json")
COMMANDS = (CHECK, STATUS)
NOBODY = 2**22 - 7
"""A number that no process has: the largest ones are given out last."""
ALIVE = b'{"status": "ok", "missing": []}'


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


def make_worker(**fields: Any) -> WorkerRecord:
    start: dict[str, Any] = {"name": "host-1", "host": socket.gethostname(), "pid": NOBODY, "version": "1", "mode": "normal"}
    return WorkerRecord(**{**start, "started_at": ago(hours=2), "beat_at": datetime.now(UTC), **fields})


def save(lab: Any, worker: WorkerRecord) -> WorkerRecord:
    lab.write(lambda uow: uow.workers.save(worker))
    return worker


def open_alert(lab: Any, condition: ConditionId, since: datetime, **fields: Any) -> None:
    lab.write(lambda uow: uow.alerts.open(Alert(condition=condition, since=since, opened_at=since, **fields)))


def found(done: Any) -> dict[str, Any]:
    """The conditions by their id."""
    return {each["condition"]: each for each in json.loads(done.out)["conditions"]}


def of_agent(done: Any) -> set[str]:
    return {each for each in found(done) if each.startswith("agent.")}


@pytest.fixture
def port(lab: Any) -> int:
    """The port of the status page in the settings."""
    number = free_port()
    edit(lab, "[status]\nport = 0", f"[status]\nport = {number}")
    return number


@contextmanager
def http_server(port: int, body: bytes, readiness: bytes | None = b"{}") -> Iterator[None]:
    """A program that answers everything with this body, but `/readyz`, which it never does where that is None."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/readyz" and readiness is None:
                over.wait(DEADLINE)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(readiness or b"" if self.path == "/readyz" else body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            over.set()
            server.shutdown()


@contextmanager
def sleeping_process() -> Iterator[int]:
    """A process that lives and does nothing."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


# --- whether the agent runs


def test_agent_that_lives_or_never_ran_is_nothing_wrong(cli: Any, lab: Any) -> None:
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, found(done)) == (0, {})
    save(lab, make_worker(started_at=datetime.now(UTC)))
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, found(done)) == (0, {})


def test_agent_without_heartbeat_is_told_since_the_last(cli: Any, lab: Any) -> None:
    gone = save(lab, make_worker(beat_at=ago(minutes=12)))
    for words in COMMANDS:
        done = cli(*words)
        told = found(done)["agent.not_running"]
        assert (done.code, told["severity"], told["since"]) == (2, "critical", gone.beat_at.isoformat())
        assert told["command"] == "systemctl start lab-agent"
    open_alert(lab, ConditionId.AGENT_FROZEN, ago(minutes=12))
    assert list(found(cli(*CHECK))) == ["agent.not_running"], "what it covers is left out"


@pytest.mark.parametrize(
    ("fields", "code", "condition", "severity"),
    [
        ({"stopped_at": timedelta(minutes=5), "stopped_by": "SIGTERM"}, 2, "agent.not_running", "critical"),
        ({"stalled_at": timedelta(minutes=2), "stalled_ms": 180_000}, 0, "agent.stood_still", "notice"),
        ({}, 2, "agent.poll_overdue", "critical"),
    ],
    ids=["stopped", "stood still", "old poll"],
)
def test_what_is_wrong_with_the_agent_is_told(
    cli: Any, lab: Any, fields: dict[str, Any], code: int, condition: str, severity: str
) -> None:
    times = {name: datetime.now(UTC) - value if name.endswith("_at") else value for name, value in fields.items()}
    started = {"started_at": datetime.now(UTC)} if "stalled_at" in fields else {}
    save(lab, make_worker(**times, **started))
    if not fields:
        lab.write(lambda uow: uow.key_values.set("poll.succeeded", ago(hours=1).isoformat()))
    done = cli(*CHECK)
    told = found(done)
    assert (done.code, list(told), told[condition]["severity"]) == (code, [condition], severity)
    if "stopped_at" in times:
        assert (told[condition]["since"], "SIGTERM" in told[condition]["cause"]) == (times["stopped_at"].isoformat(), True)


@pytest.mark.slow
def test_agent_whose_process_lives_without_heartbeat_is_frozen(cli: Any, lab: Any) -> None:
    """The same agent right after: another condition, and the critical one is over at once."""
    with sleeping_process() as pid:
        frozen = save(lab, make_worker(pid=pid, started_at=datetime.now(UTC), beat_at=ago(minutes=3)))
        done = cli(*CHECK)
        assert (done.code, list(found(done)), process_lives(frozen)) == (2, ["agent.frozen"], True)
        assert not process_lives(replace(frozen, started_at=ago(hours=1))), "the process that got the number later is another"
        save(lab, replace(frozen, beat_at=datetime.now(UTC), stalled_at=datetime.now(UTC), stalled_ms=180_000))
        assert list(found(cli(*CHECK))) == ["agent.stood_still"]
    assert not process_lives(make_worker(pid=os.getpid(), host="another", started_at=datetime.now(UTC)))


def test_process_that_was_killed_and_not_asked_for_has_ended() -> None:
    """As in a container without an init process: nobody collects what is left of it."""
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = make_worker(pid=killed.pid, started_at=datetime.now(UTC))
    assert process_lives(worker)
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert not process_lives(worker)
    killed.communicate()


@pytest.mark.slow
def test_port_taken_by_another_program_or_agent_is_told(cli: Any, lab: Any, port: int) -> None:
    with http_server(port, b"hello"):
        done = cli(*STATUS)
    assert (done.code, found(done)["agent.port_taken"]["subject"]) == (2, f"127.0.0.1:{port}")
    save(lab, make_worker(stopped_at=datetime.now(UTC), stopped_by="SIGTERM"))
    with http_server(port, ALIVE):
        assert set(found(cli(*STATUS))) == {"agent.not_running", "agent.port_taken"}


@pytest.mark.slow
def test_agent_that_answers_and_cannot_write_is_not_frozen(cli: Any, lab: Any, port: int) -> None:
    """Its heartbeats are old, as on a full disk: that is told as a condition of the store."""
    with sleeping_process() as pid, http_server(port, ALIVE):
        save(lab, make_worker(pid=pid, started_at=datetime.now(UTC), beat_at=ago(minutes=3)))
        assert found(cli(*STATUS)) == {}


@pytest.mark.slow
def test_own_agent_with_blocked_readiness_does_not_answer(cli: Any, lab: Any, port: int) -> None:
    """Offline, too: it needs no network for that; an address elsewhere is not asked. Without a store, by its `/healthz`."""
    save(lab, make_worker(started_at=datetime.now(UTC)))
    with http_server(port, ALIVE, None):
        told = found(cli(*STATUS))
        assert {key: each["subject"] for key, each in told.items()} == {"agent.not_answering": f"127.0.0.1:{port}"}
        assert "/readyz" in told["agent.not_answering"]["cause"]
        assert set(found(cli(*CHECK))) == {"agent.not_answering"}
        (lab.folder / "lab.db").unlink()
        assert of_agent(cli(*STATUS)) == {"agent.not_answering"}
    edit(lab, "[status]\n", '[status]\nhost = "192.0.2.7"\n')
    assert of_agent(cli(*CHECK)) == set()


@pytest.mark.slow
def test_silent_address_is_our_agents_by_its_heartbeat_or_lock(cli: Any, lab: Any, port: int) -> None:
    """A program takes connections, and never answers."""
    with sleeping_process() as pid, socket.create_server(("127.0.0.1", port)):
        save(lab, make_worker(pid=pid, started_at=datetime.now(UTC)))
        assert set(found(cli(*STATUS))) == {"agent.not_answering"}
        (lab.folder / "lab.db").unlink()
        for holder, condition in ((pid, "agent.not_answering"), (NOBODY, "agent.port_taken")):
            (lab.folder / "lab.db.lock").write_text(str(LockHolder(socket.gethostname(), holder, datetime.now(UTC))))
            assert of_agent(cli(*STATUS)) == {condition}


# --- the store


@pytest.mark.slow
def test_agent_tells_what_is_wrong_with_its_database(cli: Any, lab: Any, port: int) -> None:
    """A database file that was deleted under it looks like one that was never made."""
    (lab.folder / "lab.db").unlink()
    since = ago(minutes=4)
    told = {"conditions": [{"id": "store.deleted", "since": since.isoformat()}, {"id": "unheard.of", "since": "x"}]}
    with http_server(port, ALIVE, json.dumps(told).encode()):
        for command in ("check", "status"):
            done = cli(command, "--json")
            assert (done.code, found(done)["store.deleted"]["since"]) == (2, since.isoformat())
            assert {"agent.not_running", "agent.port_taken"}.isdisjoint(found(done))


@pytest.mark.slow
def test_damaged_database_is_told_and_as_old_as_the_file(cli: Any, lab: Any) -> None:
    file, then = lab.folder / "lab.db", ago(hours=5)
    content = bytearray(file.read_bytes())
    content[100:] = b"\x07" * (len(content) - 100)
    file.write_bytes(content)
    os.utime(file, (then.timestamp(), then.timestamp()))
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, [each for each in found(done) if each.startswith("store.")]) == (2, ["store.damaged"])
        assert datetime.fromisoformat(found(done)["store.damaged"]["since"]) == then


def test_status_is_read_while_another_program_writes(cli: Any, lab: Any) -> None:
    with sqlite3.connect(lab.folder / "lab.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert json.loads(cli(*STATUS).out)["numbers"]["held"] == 0
        other.execute("ROLLBACK")


def leave_log(lab: Any) -> None:
    (lab.folder / "lab.db-wal").write_bytes(b"x")


def leave_lock(lab: Any) -> None:
    (lab.folder / "lab.db.lock").touch()


def leave_backup(lab: Any) -> None:
    (lab.folder / "backups" / "monday").mkdir(parents=True)
    (lab.folder / "backups" / "monday" / "lab.db").write_bytes(b"x")
    lab.config.write_text(lab.config.read_text() + '\n[backup]\nfolder = "backups"\n')


def leave_label_mark(lab: Any) -> None:
    (lab.folder / "labels.json").write_text("{}")
    edit(lab, "[api]\n", '[api]\nlabel_mark = "labels.json"\n')


@pytest.mark.parametrize("leave", [leave_log, leave_lock, leave_backup, leave_label_mark])
@pytest.mark.slow
def test_lost_database_is_told(cli: Any, lab: Any, leave: Callable[[Any], None]) -> None:
    """What a former database has left tells it from one that was never made; an emptied one has another schema."""
    for file in lab.folder.glob("lab.db*"):
        file.unlink()
    leave(lab)
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, set(found(done))) == (2, {"store.deleted"})
        said = json.loads(done.out)
        assert said.get("operation", said)["numbers"] is None
    if leave is not leave_log:
        (lab.folder / "lab.db").write_bytes(b"")
        done = cli(*STATUS)
        assert (done.code, "store.other_schema" in found(done)) == (2, True)


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.slow
def test_database_that_was_never_made_is_one_step_to_do(cli: Any, lab: Any, port: int, is_empty: bool) -> None:
    (lab.folder / "lab.db").unlink()
    if is_empty:
        (lab.folder / "lab.db").write_bytes(b"")
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, found(done)) == (0, {})
        assert cli(*words[:-1]).out.count("run `lab-agent db upgrade`") == 1


@pytest.mark.slow
def test_empty_database_of_a_server_is_one_step_to_do(cli: Any, lab: Any, port: int, postgres_url: str) -> None:
    lab.config.write_text(lab.config.read_text().replace("sqlite:///lab.db", postgres_url) + "\n[backup]\nfolder = 'backups'\n")
    for command in ("check", "status"):
        assert found(cli(command, "--json")) == {}
        assert cli(command).out.count("run `lab-agent db upgrade`") == 1
    assert cli("db", "upgrade").code == 0
    assert found(cli("check", "--json")) == found(cli("status", "--json")) == {}


def test_agent_without_a_database_leaves_nothing_of_one(tmp_path: Any) -> None:
    """Else a new installation would look like a lost one."""
    lock = AgentLock(f"sqlite:///{tmp_path / 'lab.db'}")
    with pytest.raises(StoreUnreachableError, match="There is no database"):
        lock.acquire(datetime.now(UTC))
    assert list(tmp_path.iterdir()) == []


# --- alerts, and what the commands find themselves


def test_open_alert_is_told_with_age_and_number(cli: Any, lab: Any) -> None:
    save(lab, make_worker(started_at=datetime.now(UTC)))
    open_alert(lab, ConditionId.API_CALLERS_REFUSED, ago(hours=3), subject="wrong_credentials", count=7)
    done = cli("check", "--offline")
    assert done.code == 1
    for words in ("WARNING   Callers of the laboratory's API are refused", "(3 h)", "lab-agent api-token list"):
        assert words in done.out
    assert found(cli(*CHECK))["api.callers_refused"]["affected"][0]["number"] == 7


@pytest.mark.slow
def test_held_orders_and_parked_jobs_need_a_person(cli: Any, lab: Any) -> None:
    """Also before the agent has opened an alert: it may be stopped, or have none of its own yet."""
    now = datetime.now(UTC)
    save(lab, make_worker(started_at=now))
    held = {"reason": "x", "held_since": now, "hold_cause": "unknown_contract"}

    def wait(uow: Any) -> None:
        uow.orders.add(OrderRecord(key="R1", task_id="t", state=OrderState.HELD, seen_at=now, changed_at=now, **held))
        uow.jobs.add(NewJob(kind=JobKind.DELIVER_REPORT, dedup_key="j", ordering_key="j", target="x", due_at=now))
        (job,) = uow.jobs.claim({frozenset(JobKind): 1}, owner="w", now=now, lease=timedelta(hours=1))
        uow.jobs.save(job.dead_letter(now, "422").failed(now, FailureCause.OTHER))

    lab.write(wait)
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, {each.partition(".")[0] for each in found(done)}) == (1, {"orders", "jobs"})
        said = json.loads(done.out)
        numbers = said.get("operation", said)["numbers"]
        assert (numbers["held"], numbers["parked"]) == (1, 1)


def test_alert_of_a_probe_ends_when_the_command_finds_nothing(cli: Any, lab: Any) -> None:
    """The agent, which would end it, may be stopped."""
    open_alert(lab, ConditionId.DISK_LOW, datetime.now(UTC), subject="/x")
    assert cli("check", "--offline").code == 0


@pytest.mark.slow
def test_full_disk_and_equal_ports_are_found_with_their_age(cli: Any, lab: Any, port: int) -> None:
    """What is told by a time stamp of a file, or by an alert, begins there, not anew with every call."""
    then = ago(hours=5)
    edit(lab, "[api]\n", f"[monitoring]\ndisk_reserve = {10**18}\n[backup]\nfolder = 'backups'\n[api]\nport = {port}\n")
    lab.write(lambda uow: uow.key_values.set(CREATED_AT_KEY, "2026-01-01T00:00:00+00:00"))  # the first backup is overdue
    done = cli(*CHECK)
    expected = {"disk.low", "settings.equal_ports", "backup.old"}
    assert (done.code, set(found(done))) == (1, expected)
    assert found(done)["disk.low"]["command"] == f"df -h {lab.folder}"
    (lab.folder / "backups").mkdir()
    for each in (lab.config, lab.folder / "backups"):
        os.utime(each, (then.timestamp(), then.timestamp()))
    open_alert(lab, ConditionId.DISK_LOW, then, subject=str(lab.folder))
    assert {name: datetime.fromisoformat(each["since"]) for name, each in found(cli(*CHECK)).items()} == dict.fromkeys(
        expected, then
    )


def test_invalid_settings_are_told_since_their_file_was_changed(cli: Any, lab: Any) -> None:
    lab.config.write_text(lab.config.read_text() + "\n[worker]\nlease = 'long'\n")
    since = datetime(2026, 3, 1, 12, tzinfo=UTC)
    os.utime(lab.config, (since.timestamp(), since.timestamp()))
    done = cli(*CHECK)
    told = found(done)["settings.invalid"]
    assert (done.code, list(found(done)), told["since"]) == (2, ["settings.invalid"], since.isoformat())
    assert "worker.lease" in told["cause"]
    assert [line["status"] for line in json.loads(done.out)["checks"]] == ["WRONG"]


# --- the screen


def test_status_begins_with_its_verdict(cli: Any, lab: Any) -> None:
    save(lab, make_worker(started_at=datetime.now(UTC)))
    works = cli("status")
    assert (works.code, works.out.splitlines()[0]) == (0, "Works: nothing waits for a person.")
    assert [line for line in works.out.splitlines() if line.startswith("agent ") and socket.gethostname() in line]
    open_alert(lab, ConditionId.LABELS_LOW, datetime.now(UTC), subject="one")
    waits = cli("status")
    assert (waits.code, waits.out.splitlines()[0]) == (1, "1 thing needs a person.")


def test_status_is_drawn_again_until_interrupted(cli: Any, lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def interrupt_the_second(seconds: float) -> None:
        drawn.append(seconds)
        if len(drawn) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("lab_agent.cli.status.time.sleep", interrupt_the_second)
    done = cli("status", "--watch", "--every", "7")
    assert (done.code, drawn) == (0, [7.0, 7.0])
    assert "last poll" in done.out
