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
from pathlib import Path
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
from tests.integration.cli.conftest import KEY

COMMANDS = [("check", "--offline", "--json"), ("status", "--json")]
NOBODY = 2**22 - 7
"""A number that no process has: the largest ones are given out last."""


def make_worker(**fields: Any) -> WorkerRecord:
    now = datetime.now(UTC)
    start: dict[str, Any] = {"name": "host-1", "host": socket.gethostname(), "pid": NOBODY, "version": "1", "mode": "normal"}
    return WorkerRecord(**{**start, "started_at": now - timedelta(hours=2), "beat_at": now, **fields})


def save(lab: Any, worker: WorkerRecord) -> WorkerRecord:
    lab.write(lambda uow: uow.workers.save(worker))
    return worker


def found(done: Any) -> dict[str, Any]:
    """The conditions by their id."""
    return {each["condition"]: each for each in json.loads(done.out)["conditions"]}


@pytest.fixture
def port(lab: Any) -> int:
    """The port of the status page in the settings."""
    number = free_port()
    lab.config.write_text(lab.config.read_text().replace("[status]\nport = 0", f"[status]\nport = {number}"))
    return number


ALIVE = b'{"status": "ok", "missing": []}'


@contextmanager
def http_server(port: int, body: bytes, readiness: bytes = b"{}") -> Iterator[None]:
    """A program that answers everything with this body, but `/readyz`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(readiness if self.path == "/readyz" else body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
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


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_agent_that_never_ran_is_nothing_wrong(cli: Any, lab: Any, words: tuple[str, ...]) -> None:
    done = cli(*words)
    assert (done.code, found(done)) == (0, {})


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_living_agent_is_nothing_wrong(cli: Any, lab: Any, words: tuple[str, ...]) -> None:
    save(lab, make_worker(started_at=datetime.now(UTC)))
    done = cli(*words)
    assert (done.code, found(done)) == (0, {})


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_agent_without_heartbeat_is_told_since_the_last(cli: Any, lab: Any, words: tuple[str, ...]) -> None:
    gone = save(lab, make_worker(beat_at=datetime.now(UTC) - timedelta(minutes=12)))
    done = cli(*words)
    assert done.code == 2
    told = found(done)["agent.not_running"]
    assert (told["severity"], told["since"]) == ("critical", gone.beat_at.isoformat())
    assert told["command"] == "systemctl start lab-agent"


def test_stopped_agent_is_told_with_who_stopped_it(cli: Any, lab: Any) -> None:
    stopped = save(lab, make_worker(stopped_at=datetime.now(UTC) - timedelta(minutes=5), stopped_by="SIGTERM"))
    told = found(cli("check", "--offline", "--json"))["agent.not_running"]
    assert (told["since"], "SIGTERM" in told["cause"]) == (stopped.stopped_at.isoformat(), True)


def test_agent_whose_process_lives_without_heartbeat_is_frozen(cli: Any, lab: Any) -> None:
    with sleeping_process() as pid:
        now = datetime.now(UTC)
        save(lab, make_worker(pid=pid, started_at=now, beat_at=now - timedelta(minutes=3)))
        done = cli("check", "--offline", "--json")
        assert process_lives(make_worker(pid=pid, started_at=now))
    assert (done.code, list(found(done))) == (2, ["agent.frozen"])


def test_process_that_got_the_number_later_is_another() -> None:
    with sleeping_process() as pid:
        assert not process_lives(make_worker(pid=pid, started_at=datetime.now(UTC) - timedelta(hours=1)))
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


def test_agent_that_stood_still_is_told_afterwards(cli: Any, lab: Any) -> None:
    now = datetime.now(UTC)
    save(lab, make_worker(started_at=now, stalled_at=now - timedelta(minutes=2), stalled_ms=180_000))
    done = cli("check", "--offline", "--json")
    told = found(done)
    assert (done.code, list(told), told["agent.stood_still"]["severity"]) == (0, ["agent.stood_still"], "notice")


def test_agent_that_went_on_is_not_told_as_standing(cli: Any, lab: Any) -> None:
    """The same agent, right before and right after: two conditions, and the critical one is over at once."""
    with sleeping_process() as pid:
        now = datetime.now(UTC)
        stalled = make_worker(pid=pid, started_at=now, beat_at=now - timedelta(minutes=3))
        save(lab, stalled)
        assert list(found(cli("check", "--offline", "--json"))) == ["agent.frozen"]
        save(lab, replace(stalled, beat_at=datetime.now(UTC), stalled_at=datetime.now(UTC), stalled_ms=180_000))
        assert list(found(cli("check", "--offline", "--json"))) == ["agent.stood_still"]


def test_old_poll_is_told_while_the_agent_lives(cli: Any, lab: Any) -> None:
    save(lab, make_worker())
    lab.write(lambda uow: uow.key_values.set("poll.succeeded", (datetime.now(UTC) - timedelta(hours=1)).isoformat()))
    assert list(found(cli("check", "--offline", "--json"))) == ["agent.poll_overdue"]


def test_port_taken_by_another_program_is_told(cli: Any, lab: Any, port: int) -> None:
    with http_server(port, b"hello"):
        done = cli("status", "--json")
    assert (done.code, found(done)["agent.port_taken"]["subject"]) == (2, f"127.0.0.1:{port}")


def test_port_taken_by_another_agent_is_told(cli: Any, lab: Any, port: int) -> None:
    save(lab, make_worker(stopped_at=datetime.now(UTC), stopped_by="SIGTERM"))
    with http_server(port, ALIVE):
        assert set(found(cli("status", "--json"))) == {"agent.not_running", "agent.port_taken"}


def test_agent_that_answers_and_cannot_write_is_not_frozen(cli: Any, lab: Any, port: int) -> None:
    """Its heartbeats are old, as on a full disk: that is told as a condition of the store."""
    with sleeping_process() as pid, http_server(port, ALIVE):
        now = datetime.now(UTC)
        save(lab, make_worker(pid=pid, started_at=now, beat_at=now - timedelta(minutes=3)))
        assert found(cli("status", "--json")) == {}


@contextmanager
def silent_listener(port: int) -> Iterator[None]:
    """A program that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", port)):
        yield


@contextmanager
def blocked_readiness(port: int) -> Iterator[None]:
    """An agent that answers `/healthz`, and never `/readyz`."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/readyz":
                over.wait(DEADLINE)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ALIVE)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            over.set()
            server.shutdown()


def test_own_agent_with_blocked_readiness_does_not_answer(cli: Any, lab: Any, port: int) -> None:
    save(lab, make_worker(started_at=datetime.now(UTC)))
    with blocked_readiness(port):
        told = found(cli("status", "--json"))
    assert {key: each["subject"] for key, each in told.items()} == {"agent.not_answering": f"127.0.0.1:{port}"}
    assert "/readyz" in told["agent.not_answering"]["cause"]


def test_own_agent_with_blocked_readiness_is_known_without_store(cli: Any, lab: Any, port: int) -> None:
    (lab.folder / "lab.db").unlink()
    with blocked_readiness(port):
        told = found(cli("status", "--json"))
    assert {each for each in told if each.startswith("agent.")} == {"agent.not_answering"}


def test_silent_address_is_our_agents_by_its_heartbeat(cli: Any, lab: Any, port: int) -> None:
    with sleeping_process() as pid, silent_listener(port):
        save(lab, make_worker(pid=pid, started_at=datetime.now(UTC)))
        assert set(found(cli("status", "--json"))) == {"agent.not_answering"}


def test_silent_address_is_our_agents_by_its_lock(cli: Any, lab: Any, port: int) -> None:
    (lab.folder / "lab.db").unlink()
    lock = lab.folder / "lab.db.lock"
    with sleeping_process() as pid, silent_listener(port):
        lock.write_text(str(LockHolder(socket.gethostname(), pid, datetime.now(UTC))))
        held = found(cli("status", "--json"))
        lock.write_text(str(LockHolder(socket.gethostname(), NOBODY, datetime.now(UTC))))
        gone = found(cli("status", "--json"))
    assert {each for each in held if each.startswith("agent.")} == {"agent.not_answering"}
    assert {each for each in gone if each.startswith("agent.")} == {"agent.port_taken"}


# --- the store


def test_agent_tells_what_is_wrong_with_its_database(cli: Any, lab: Any, port: int) -> None:
    """A database file that was deleted under it looks like one that was never made."""
    (lab.folder / "lab.db").unlink()
    since = datetime.now(UTC) - timedelta(minutes=4)
    said = {"conditions": [{"id": "store.deleted", "since": since.isoformat()}, {"id": "unheard.of", "since": "x"}]}
    with http_server(port, ALIVE, json.dumps(said).encode()):
        for command in ("check", "status"):
            done = cli(command, "--json")
            assert (done.code, found(done)["store.deleted"]["since"]) == (2, since.isoformat())
            assert {"agent.not_running", "agent.port_taken"}.isdisjoint(found(done))


def test_damaged_database_is_told(cli: Any, lab: Any) -> None:
    file = lab.folder / "lab.db"
    content = bytearray(file.read_bytes())
    content[100:] = b"\x07" * (len(content) - 100)
    file.write_bytes(content)
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, [each for each in found(done) if each.startswith("store.")]) == (2, ["store.damaged"])


def test_other_key_is_told(cli: Any, lab: Any) -> None:
    lab.write(lambda uow: uow.vault.save_document(b"x", "text/plain", at=datetime.now(UTC)))
    text = lab.config.read_text()
    lab.config.write_text(text.replace(KEY, "YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk="))
    done = cli("check", "--offline", "--json")
    assert (done.code, "store.other_key" in found(done)) == (2, True)


def test_status_is_read_while_another_program_writes(cli: Any, lab: Any) -> None:
    with sqlite3.connect(lab.folder / "lab.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert json.loads(cli("status", "--json").out)["numbers"]["held"] == 0
        other.execute("ROLLBACK")


# --- alerts, and what the commands find themselves


def test_open_alert_is_told_with_age_and_number(cli: Any, lab: Any) -> None:
    save(lab, make_worker(started_at=datetime.now(UTC)))
    since = datetime.now(UTC) - timedelta(hours=3)
    alert = Alert(condition=ConditionId.API_CALLERS_REFUSED, subject="wrong_credentials", since=since, opened_at=since, count=7)
    lab.write(lambda uow: uow.alerts.open(alert))
    done = cli("check", "--offline")
    assert done.code == 1
    assert "WARNING   Callers of the laboratory's API are refused" in done.out
    assert "(3 h)" in done.out
    assert "lab-agent api-token list" in done.out
    assert found(cli("check", "--offline", "--json"))["api.callers_refused"]["affected"][0]["number"] == 7


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_held_orders_and_parked_jobs_need_a_person(cli: Any, lab: Any, words: tuple[str, ...]) -> None:
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
    done = cli(*words)
    assert done.code == 1
    assert {each.partition(".")[0] for each in found(done)} == {"orders", "jobs"}
    said = json.loads(done.out)
    numbers = said.get("operation", said)["numbers"]
    assert (numbers["held"], numbers["parked"]) == (1, 1)


def test_alert_of_a_probe_ends_when_the_command_finds_nothing(cli: Any, lab: Any) -> None:
    """The agent, which would end it, may be stopped."""
    now = datetime.now(UTC)
    lab.write(lambda uow: uow.alerts.open(Alert(condition=ConditionId.DISK_LOW, subject="/x", since=now, opened_at=now)))
    assert cli("check", "--offline").code == 0


def test_full_disk_and_equal_ports_are_found_at_once(cli: Any, lab: Any, port: int) -> None:
    text = f"[monitoring]\ndisk_reserve = {10**18}\n[backup]\nfolder = '{lab.folder}/backups'\n[api]\nport = {port}\n"
    lab.config.write_text(lab.config.read_text().replace("[api]\n", text))
    lab.write(lambda uow: uow.key_values.set(CREATED_AT_KEY, "2026-01-01T00:00:00+00:00"))  # the first backup is overdue
    done = cli("check", "--offline", "--json")
    assert done.code == 1
    told = found(done)
    assert set(told) == {"disk.low", "settings.equal_ports", "backup.old"}
    assert told["disk.low"]["command"] == f"df -h {lab.folder}"


def test_condition_that_is_covered_is_left_out(cli: Any, lab: Any) -> None:
    since = datetime.now(UTC)
    save(lab, make_worker(beat_at=since - timedelta(minutes=12)))
    overdue = Alert(condition=ConditionId.AGENT_FROZEN, since=since, opened_at=since)
    lab.write(lambda uow: uow.alerts.open(overdue))
    assert list(found(cli("check", "--offline", "--json"))) == ["agent.not_running"]


def test_age_does_not_begin_anew_with_every_call(cli: Any, lab: Any, port: int) -> None:
    """What is told by a time stamp of a file, or by an alert, begins there."""
    then = datetime.now(UTC) - timedelta(hours=5)
    text = f"[monitoring]\ndisk_reserve = {10**18}\n[backup]\nfolder = '{lab.folder}/backups'\n[api]\nport = {port}\n"
    lab.config.write_text(lab.config.read_text().replace("[api]\n", text))
    (lab.folder / "backups").mkdir()
    for each in (lab.config, lab.folder / "backups"):
        os.utime(each, (then.timestamp(), then.timestamp()))
    low = Alert(condition=ConditionId.DISK_LOW, subject=str(lab.folder), since=then, opened_at=then)
    lab.write(lambda uow: uow.alerts.open(low))
    lab.write(lambda uow: uow.key_values.set(CREATED_AT_KEY, "2026-01-01T00:00:00+00:00"))
    told = found(cli("check", "--offline", "--json"))
    assert {name: datetime.fromisoformat(each["since"]) for name, each in told.items()} == dict.fromkeys(
        ("disk.low", "settings.equal_ports", "backup.old"), then
    )


def test_damage_is_as_old_as_the_file(cli: Any, lab: Any) -> None:
    file, then = lab.folder / "lab.db", datetime.now(UTC) - timedelta(hours=5)
    content = bytearray(file.read_bytes())
    content[100:] = b"\x07" * (len(content) - 100)
    file.write_bytes(content)
    os.utime(file, (then.timestamp(), then.timestamp()))
    assert datetime.fromisoformat(found(cli("check", "--offline", "--json"))["store.damaged"]["since"]) == then


def test_offline_check_asks_the_agent_on_this_machine(cli: Any, lab: Any, port: int) -> None:
    """It needs no network for that; an address elsewhere is not asked."""
    save(lab, make_worker(started_at=datetime.now(UTC)))
    with blocked_readiness(port):
        assert set(found(cli("check", "--offline", "--json"))) == {"agent.not_answering"}
        lab.config.write_text(lab.config.read_text().replace("[status]\n", '[status]\nhost = "192.0.2.7"\n'))
        assert found(cli("check", "--offline", "--json")) == {}


# --- the screen


def test_status_begins_with_its_verdict(cli: Any, lab: Any) -> None:
    save(lab, make_worker(started_at=datetime.now(UTC)))
    works = cli("status")
    assert (works.code, works.out.splitlines()[0]) == (0, "Works: nothing waits for a person.")
    assert [line for line in works.out.splitlines() if line.startswith("agent ") and socket.gethostname() in line]
    now = datetime.now(UTC)
    lab.write(lambda uow: uow.alerts.open(Alert(condition=ConditionId.LABELS_LOW, subject="one", since=now, opened_at=now)))
    waits = cli("status")
    assert (waits.code, waits.out.splitlines()[0]) == (1, "1 thing needs a person.")


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
    lab.config.write_text(lab.config.read_text().replace("[api]\n", '[api]\nlabel_mark = "labels.json"\n'))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("leave", [leave_log, leave_lock, leave_backup, leave_label_mark])
def test_lost_database_is_told(cli: Any, lab: Any, words: tuple[str, ...], leave: Callable[[Any], None]) -> None:
    """What a former database has left tells it from one that was never made."""
    for file in lab.folder.glob("lab.db*"):
        file.unlink()
    leave(lab)
    done = cli(*words)
    assert (done.code, set(found(done))) == (2, {"store.deleted"})
    said = json.loads(done.out)
    assert said.get("operation", said)["numbers"] is None


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_database_that_was_never_made_is_nothing_wrong(cli: Any, lab: Any, port: int, words: tuple[str, ...]) -> None:
    (lab.folder / "lab.db").unlink()
    done = cli(*words)
    assert (done.code, found(done)) == (0, {})
    assert "run `lab-agent db upgrade`" in cli(words[0], *words[1:-1]).out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_empty_database_file_is_one_step_to_do(cli: Any, lab: Any, port: int, words: tuple[str, ...]) -> None:
    (lab.folder / "lab.db").write_bytes(b"")
    done = cli(*words)
    assert (done.code, found(done)) == (0, {})
    assert cli(words[0], *words[1:-1]).out.count("run `lab-agent db upgrade`") == 1


@pytest.mark.parametrize("leave", [leave_lock, leave_backup, leave_label_mark])
def test_emptied_database_is_told(cli: Any, lab: Any, leave: Callable[[Any], None]) -> None:
    (lab.folder / "lab.db").write_bytes(b"")
    leave(lab)
    done = cli("status", "--json")
    assert (done.code, "store.other_schema" in found(done)) == (2, True)


@pytest.mark.parametrize("words", [("check", "--json"), ("status", "--json")], ids=" ".join)
def test_empty_database_of_a_server_is_one_step_to_do(
    cli: Any, lab: Any, port: int, postgres_url: str, words: tuple[str, ...]
) -> None:
    lab.config.write_text(lab.config.read_text().replace("sqlite:///lab.db", postgres_url) + "\n[backup]\nfolder = 'backups'\n")
    assert found(cli(*words)) == {}
    assert cli(*words[:-1]).out.count("run `lab-agent db upgrade`") == 1
    assert cli("db", "upgrade").code == 0
    assert found(cli(*words)) == {}


def test_agent_without_a_database_leaves_nothing_of_one(tmp_path: Path) -> None:
    """Else a new installation would look like a lost one."""
    lock = AgentLock(f"sqlite:///{tmp_path / 'lab.db'}")
    with pytest.raises(StoreUnreachableError, match="There is no database"):
        lock.acquire(datetime.now(UTC))
    assert list(tmp_path.iterdir()) == []


def test_invalid_settings_are_told_since_their_file_was_changed(cli: Any, lab: Any) -> None:
    lab.config.write_text(lab.config.read_text() + "\n[worker]\nlease = 'long'\n")
    since = datetime(2026, 3, 1, 12, tzinfo=UTC)
    os.utime(lab.config, (since.timestamp(), since.timestamp()))
    done = cli("check", "--offline", "--json")
    told = found(done)["settings.invalid"]
    assert (done.code, list(found(done)), told["since"]) == (2, ["settings.invalid"], since.isoformat())
    assert "worker.lease" in told["cause"]


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
