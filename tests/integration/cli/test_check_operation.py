"""What `lab-agent check` and `lab-agent status` say about operation, from what is in the store and on the machine."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.cli.agent_life import (
    UNASKED,
    Listener,
    PageAnswer,
    ask_agent_page,
    find_absence,
    find_absence_without_store,
    process_lives,
)
from lab_agent.operations.agent import AgentLimits, AgentState
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind, NewJob
from lab_agent.queue.workers import WorkerRecord
from lab_agent.settings.status import StatusSettings
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.state_machines import OrderState
from lab_agent.store.agent_lock import LockHolder
from lab_agent.store.event_records import Alert
from lab_agent.store.restoration import CREATED_AT_KEY
from tests.harness.clock import DEADLINE
from tests.harness.programs import free_port
from tests.integration.cli.conftest import edit, make_order

CHECK, STATUS = ("check", "--offline", "--json"), ("status", "--json")
COMMANDS = (CHECK, STATUS)
GONE = 2**22 - 7
"""A number that no process has: the largest ones are given out last."""
ALIVE = b'{"status": "ok", "missing": []}'


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


def make_worker(**fields: Any) -> WorkerRecord:
    start: dict[str, Any] = {"name": "host-1", "host": socket.gethostname(), "pid": GONE, "version": "1", "mode": "normal"}
    return WorkerRecord(**{**start, "started_at": ago(hours=2), "beat_at": datetime.now(UTC), **fields})


def at(ages: dict[str, Any]) -> dict[str, Any]:
    """Fields of a worker, whose times are given as ages."""
    return {name: datetime.now(UTC) - each if isinstance(each, timedelta) else each for name, each in ages.items()}


def save(lab: Any, worker: WorkerRecord) -> WorkerRecord:
    lab.write(lambda uow: uow.workers.save(worker))
    return worker


def open_alert(lab: Any, condition: ConditionId, since: datetime, **fields: Any) -> None:
    lab.write(lambda uow: uow.alerts.open(Alert(condition=condition, since=since, opened_at=since, **fields)))


def found(done: Any) -> dict[str, Any]:
    """The conditions by their id."""
    return {each["condition"]: each for each in json.loads(done.out)["conditions"]}


def numbers(done: Any) -> Any:
    said = json.loads(done.out)
    return said.get("operation", said)["numbers"]


@pytest.fixture
def port(lab: Any) -> int:
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
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            over.set()
            server.shutdown()


# --- whether the agent runs

HERE = os.getpid()
FRESH = {"beat_at": timedelta(0)}
OLD = {"beat_at": timedelta(minutes=3)}
STOPPED = {"stopped_at": timedelta(minutes=5), "stopped_by": "SIGTERM"}
NOBODY_THERE, AGENT, BLOCKED = UNASKED, PageAnswer(Listener.AGENT), PageAnswer(Listener.AGENT, is_blocked=True)
STRANGER, SILENCE = PageAnswer(Listener.STRANGER), PageAnswer(Listener.SILENCE)


@pytest.mark.parametrize(
    ("pid", "times", "answer", "found"),
    [
        (None, {}, NOBODY_THERE, []),
        (None, {}, STRANGER, ["port_taken"]),
        (HERE, FRESH, NOBODY_THERE, []),
        (HERE, FRESH, BLOCKED, ["not_answering"]),
        (HERE, FRESH, SILENCE, ["not_answering"]),
        (GONE, FRESH, SILENCE, []),
        (HERE, OLD, NOBODY_THERE, ["frozen"]),
        (HERE, OLD, AGENT, []),  # it cannot write, as on a full disk: that is told as a condition of the store
        (HERE, OLD, BLOCKED, ["not_answering"]),
        (GONE, OLD, NOBODY_THERE, ["not_running"]),
        (GONE, OLD, STRANGER, ["not_running", "port_taken"]),
        (HERE, STOPPED, AGENT, ["not_running", "port_taken"]),
    ],
    ids=itertools.count(),  # the number of this process is another one in each worker of pytest
)
def test_heartbeat_process_and_page_say_how_the_agent_is(pid: int | None, times: Any, answer: PageAnswer, found: Any) -> None:
    now = datetime.now(UTC)
    workers = () if pid is None else (make_worker(pid=pid, started_at=now, **at(times)),)
    told = find_absence(
        AgentState(workers=workers, last_poll=None),
        AgentLimits(heartbeat_interval=10, poll_longest=120),
        answer,
        StatusSettings(),
        now,
    )
    assert [each.condition for each in told] == [f"agent.{name}" for name in found]


@pytest.mark.parametrize(
    ("answer", "holder", "found"),
    [
        (AGENT, None, []),
        (BLOCKED, None, ["not_answering"]),
        (SILENCE, HERE, ["not_answering"]),
        (SILENCE, GONE, ["port_taken"]),
        (STRANGER, None, ["port_taken"]),
        (NOBODY_THERE, None, ["not_running"]),
    ],
    ids=itertools.count(),
)
def test_without_a_store_page_and_lock_say_it(answer: PageAnswer, holder: int | None, found: list[str]) -> None:
    locked = None if holder is None else LockHolder(socket.gethostname(), holder, datetime.now(UTC))
    told = find_absence_without_store(answer, StatusSettings(), locked)
    assert [each.condition for each in told] == [f"agent.{name}" for name in found]


@pytest.mark.slow
async def test_programs_at_the_address_are_told_apart() -> None:
    settings = StatusSettings(port=free_port())
    assert await ask_agent_page(settings) == NOBODY_THERE
    for body, readiness, answer in ((b"hello", b"{}", STRANGER), (ALIVE, b"{}", AGENT), (ALIVE, None, BLOCKED)):
        with http_server(settings.port, body, readiness):
            assert await ask_agent_page(settings) == answer
    with socket.create_server(("127.0.0.1", settings.port)):
        assert await ask_agent_page(settings) == SILENCE


def test_process_that_ended_or_is_another_does_not_live() -> None:
    """One that was killed and not asked for, too, as in a container without an init process: nobody collects what is left."""
    assert not process_lives(make_worker(pid=HERE, started_at=ago(days=999))), "the process that got the number later is another"
    assert not process_lives(make_worker(pid=HERE, host="another", started_at=datetime.now(UTC)))
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = make_worker(pid=killed.pid, started_at=datetime.now(UTC))
    assert process_lives(worker)
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert not process_lives(worker)
    killed.communicate()


@pytest.mark.parametrize(
    ("times", "code", "condition"),
    [
        (None, 0, None),
        ({"started_at": timedelta(0)}, 0, None),
        ({"beat_at": timedelta(minutes=12)}, 2, "agent.not_running"),
        (STOPPED, 2, "agent.not_running"),
        ({"started_at": timedelta(0), "stalled_at": timedelta(minutes=2), "stalled_ms": 180_000}, 0, "agent.stood_still"),
        ({}, 2, "agent.poll_overdue"),
    ],
    ids=["never ran", "lives", "killed", "stopped", "stood still", "old poll"],
)
def test_what_is_wrong_with_the_agent_is_told(cli: Any, lab: Any, times: Any, code: int, condition: str | None) -> None:
    """Since its last heartbeat or its end; what that covers is left out."""
    if times is not None:
        worker = save(lab, make_worker(**at(times)))
        lab.write(lambda uow: uow.key_values.set("poll.succeeded", ago(hours=1).isoformat()))
    if condition == "agent.not_running":
        open_alert(lab, ConditionId.AGENT_FROZEN, ago(minutes=12))
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, list(found(done))) == (code, [condition] if condition else [])
        if condition == "agent.not_running":
            told = found(done)[condition]
            assert told["since"] == (worker.stopped_at or worker.beat_at).isoformat()
            assert (told["command"], "SIGTERM" in told["cause"]) == ("systemctl start lab-agent", times is STOPPED)


@pytest.mark.slow
def test_page_is_asked_offline_on_this_machine_alone(cli: Any, lab: Any, port: int) -> None:
    """Also without a store."""
    save(lab, make_worker(started_at=datetime.now(UTC)))
    with http_server(port, ALIVE, None):
        told = found(cli(*STATUS))["agent.not_answering"]
        assert (told["subject"], "/readyz" in told["cause"]) == (f"127.0.0.1:{port}", True)
        assert set(found(cli(*CHECK))) == {"agent.not_answering"}
        (lab.folder / "lab.db").rename(lab.folder / "lab.db.lock")
        assert "agent.not_answering" in found(cli(*STATUS))
    edit(lab, "[status]\n", '[status]\nhost = "192.0.2.7"\n')
    assert not [each for each in found(cli(*CHECK)) if each.startswith("agent.")]


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
        assert numbers(cli(*STATUS))["held"] == 0
        other.execute("ROLLBACK")


@pytest.mark.parametrize("left", ["lab.db-wal", "lab.db.lock", "backups/monday/lab.db", "labels.json"])
@pytest.mark.slow
def test_lost_database_is_told(cli: Any, lab: Any, left: str) -> None:
    """What a former database has left tells it from one that was never made; an emptied one has another schema."""
    for file in lab.folder.glob("lab.db*"):
        file.unlink()
    edit(lab, "[api]\n", '[backup]\nfolder = "backups"\n[api]\nlabel_mark = "labels.json"\n')
    (lab.folder / left).parent.mkdir(parents=True, exist_ok=True)
    (lab.folder / left).write_text("{}")
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, set(found(done))) == (2, {"store.deleted"})
        assert numbers(done) is None
    if left != "lab.db-wal":
        (lab.folder / "lab.db").write_bytes(b"")
        assert "store.other_schema" in found(cli(*STATUS))


@pytest.mark.parametrize("which", ["missing", "empty", "of a server"])
@pytest.mark.slow
def test_database_that_was_never_made_is_one_step_to_do(
    cli: Any, lab: Any, port: int, which: str, request: pytest.FixtureRequest
) -> None:
    (lab.folder / "lab.db").unlink()
    if which == "empty":
        (lab.folder / "lab.db").write_bytes(b"")
    if which == "of a server":
        edit(lab, "sqlite:///lab.db", request.getfixturevalue("postgres_url"))
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, found(done)) == (0, {})
        assert cli(words[0]).out.count("run `lab-agent db upgrade`") == 1


# --- alerts, and what the commands find themselves


def test_held_orders_and_parked_jobs_need_a_person(cli: Any, lab: Any) -> None:
    """Also before the agent has opened an alert: it may be stopped, or have none of its own yet."""
    now = datetime.now(UTC)
    save(lab, make_worker(started_at=now))
    held = {"reason": "x", "held_since": now, "hold_cause": "unknown_contract"}

    def wait(uow: Any) -> None:
        uow.orders.add(make_order("R1", state=OrderState.HELD, **held))
        uow.jobs.add(NewJob(kind=JobKind.DELIVER_REPORT, dedup_key="j", ordering_key="j", target="x", due_at=now))
        (job,) = uow.jobs.claim({frozenset(JobKind): 1}, owner="w", now=now, lease=timedelta(hours=1))
        uow.jobs.save(job.dead_letter(now, "422").failed(now, FailureCause.OTHER))

    lab.write(wait)
    for words in COMMANDS:
        done = cli(*words)
        assert (done.code, {each.partition(".")[0] for each in found(done)}) == (1, {"orders", "jobs"})
        assert (numbers(done)["held"], numbers(done)["parked"]) == (1, 1)


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
    first, *rest = cli("status").out.splitlines()
    assert first == "Works: nothing waits for a person."
    assert [line for line in rest if line.startswith("agent ") and socket.gethostname() in line]
    open_alert(lab, ConditionId.LABELS_LOW, datetime.now(UTC), subject="one")
    waits = cli("status")
    assert (waits.code, waits.out.splitlines()[0]) == (1, "1 thing needs a person.")
