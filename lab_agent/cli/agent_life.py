"""Whether the agent runs, as seen from outside: its heartbeat in the store, its process, and its answer to `/healthz`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from lab_agent.operations.agent import AgentLimits, AgentState, living_workers
from lab_agent.operations.monitor import Finding
from lab_agent.queue.workers import WorkerRecord
from lab_agent.settings.status import StatusSettings
from lab_agent.shared.conditions.model import ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import StoreFault
from lab_agent.shared.url_origin import LOOPBACK_OF_ANY
from lab_agent.store.agent_lock import LockHolder
from lab_agent.store.store_health import fault_condition

_ANSWER_SECONDS = 3.0
_MAX_ANSWER = 1_000_000
_START_TOLERANCE = timedelta(seconds=5)
_ENDED_STATES = frozenset("ZX")
"""States of a process in /proc that is a zombie, or dead."""


class Listener(Enum):
    """Who is at the address of the status page."""

    NOBODY = "nobody"
    AGENT = "agent"  # a lab-agent, if not necessarily ours
    SILENCE = "silence"  # something listens and does not answer
    STRANGER = "stranger"


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What was found at the address of the status page; an agent also tells what it knows to be wrong with its database.

    `is_blocked`: an agent answered `/healthz`, and then did not answer `/readyz` in time.
    """

    listener: Listener
    store_conditions: tuple[OpenCondition, ...] = ()
    is_blocked: bool = False


_STORE_FAULTS = frozenset(map(fault_condition, StoreFault))
UNASKED = PageAnswer(Listener.NOBODY)


def find_absence(
    state: AgentState, limits: AgentLimits, answer: PageAnswer, status: StatusSettings, now: datetime
) -> list[Finding]:
    """Find that the agent does not run, stands still, does not answer, or that its port is taken.

    That it has never run yet is no finding.
    """
    if answer.store_conditions:
        return []
    if living := living_workers(state.workers, limits, now):
        return [_not_answering(status, answer)] if _is_silence_of(living, answer) else []
    if not state.workers:
        return list(_taken_port(answer, status))
    last = state.workers[0]
    if last.stopped_at is None and process_lives(last):
        if answer.listener is not Listener.AGENT:
            return [_frozen(last)]
        # It answers and its heartbeats are old: they cannot be written. What is wrong with the store is told as such.
        return [_not_answering(status, answer)] if answer.is_blocked else []
    return [_not_running(last), *_taken_port(answer, status)]


def _is_silence_of(living: Sequence[WorkerRecord], answer: PageAnswer) -> bool:
    """Whether one of these workers holds the address, and does not answer there."""
    if answer.listener is Listener.SILENCE:
        return any(process_lives(each) for each in living)
    return answer.is_blocked


def find_absence_without_store(answer: PageAnswer, status: StatusSettings, holder: LockHolder | None) -> list[Finding]:
    """Find that nobody answers for the agent, where its database does not tell; `holder` is who has the lock beside it."""
    if not status.port or (answer.listener is Listener.AGENT and not answer.is_blocked):
        return []
    lives = holder is not None and process_lives(holder)
    if answer.is_blocked or (answer.listener is Listener.SILENCE and lives):
        return [_not_answering(status, answer)]
    if answer.listener is not Listener.NOBODY:
        return list(_taken_port(answer, status))
    detail = f"nobody answers at {status.host}:{status.port}, and its database, which would say more, cannot be read"
    return [Finding(condition=ConditionId.AGENT_NOT_RUNNING, detail=detail)]


def _not_answering(status: StatusSettings, answer: PageAnswer) -> Finding:
    path = "/readyz" if answer.is_blocked else "/healthz"
    detail = f"{path} has not answered within {_ANSWER_SECONDS:g} s"
    return Finding(condition=ConditionId.AGENT_NOT_ANSWERING, subject=_address(status), detail=detail)


def _frozen(worker: WorkerRecord) -> Finding:
    detail = f"process {worker.pid} on {worker.host} is there, and its last heartbeat was at {_time(worker.beat_at)}"
    return Finding(condition=ConditionId.AGENT_FROZEN, detail=detail, since=worker.beat_at)


def _not_running(worker: WorkerRecord) -> Finding:
    if worker.stopped_at is None:
        detail = f"it was killed, or its machine went down; its last heartbeat, on {worker.host}, was at {_time(worker.beat_at)}"
    elif worker.ended_part is not None:
        detail = f"it stopped itself at {_time(worker.stopped_at)} on {worker.host}, as its part {worker.ended_part} had ended"
    else:
        detail = f"it was stopped at {_time(worker.stopped_at)} on {worker.host} by {worker.stopped_by or 'itself'}"
    return Finding(condition=ConditionId.AGENT_NOT_RUNNING, detail=detail, since=worker.stopped_at or worker.beat_at)


def _taken_port(answer: PageAnswer, status: StatusSettings) -> Iterator[Finding]:
    if answer.listener is not Listener.NOBODY:
        who = "a lab-agent that does not work on this database" if answer.listener is Listener.AGENT else "another program"
        yield Finding(condition=ConditionId.AGENT_PORT_TAKEN, subject=_address(status), detail=f"{who} listens there")


def _address(status: StatusSettings) -> str:
    return f"{status.host}:{status.port}"


def _time(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


async def ask_agent_page(status: StatusSettings) -> PageAnswer:
    """Ask who is at the address of the status page; nobody for port 0, which is another one at each start."""
    if not status.port:
        return UNASKED
    host = LOOPBACK_OF_ANY.get(status.host, status.host)
    return await asyncio.to_thread(_ask, host, status.port)


def is_asked_offline(status: StatusSettings) -> bool:
    """Whether the page is asked without any network: it is on this machine."""
    host = LOOPBACK_OF_ANY.get(status.host, status.host)
    return host in {"localhost", "::1"} or host.startswith("127.")


def _ask(host: str, port: int) -> PageAnswer:
    try:
        health = _get(host, port, "/healthz")
        if not (isinstance(health, dict) and {"status", "missing"} <= health.keys()):
            return PageAnswer(Listener.STRANGER)
    except TimeoutError:
        return PageAnswer(Listener.SILENCE)
    except (http.client.HTTPException, ConnectionResetError, BrokenPipeError, ValueError):
        return PageAnswer(Listener.STRANGER)
    except OSError:  # refused, or no such address
        return UNASKED
    return _ask_agent(host, port)


def _ask_agent(host: str, port: int) -> PageAnswer:
    """Ask an agent what is wrong with its database. One that ends meanwhile, or is of another version, says nothing of it."""
    try:
        return PageAnswer(Listener.AGENT, tuple(_store_conditions(_get(host, port, "/readyz"))))
    except TimeoutError:
        return PageAnswer(Listener.AGENT, is_blocked=True)
    except (http.client.HTTPException, OSError, ValueError):
        return PageAnswer(Listener.AGENT)


def _get(host: str, port: int, path: str) -> Any:
    """Read JSON. Raises `OSError`, `HTTPException`, and `ValueError` for anything else."""
    with closing(http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read(_MAX_ANSWER))


def _store_conditions(said: Any) -> Iterator[OpenCondition]:
    """What `/readyz` says of the database; a version of the agent that says it otherwise is not understood."""
    conditions = said.get("conditions", ()) if isinstance(said, dict) else ()
    for each in conditions:
        try:
            condition = CONDITIONS[ConditionId(each["id"])]
            since = datetime.fromisoformat(each["since"])
        except (KeyError, TypeError, ValueError):
            continue
        if condition.id in _STORE_FAULTS:  # others are alerts in the database, which says more of them
            yield OpenCondition(condition=condition, subject=str(each.get("subject", "")), since=since)


def process_lives(worker: WorkerRecord | LockHolder) -> bool:
    """Whether the process of an agent of this host still runs; one that got its number later is another one."""
    if worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    found = _read_process(worker.pid)
    return found is None or not (found.has_ended or found.started_at > worker.started_at + _START_TOLERANCE)


@dataclass(frozen=True, slots=True)
class _Process:
    """What the system says of a process. `has_ended`: only its number is left, until whoever started it asks how it ended."""

    has_ended: bool
    started_at: datetime


def _read_process(pid: int) -> _Process | None:
    """Read it; None where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return _Process(has_ended=fields[0] in _ENDED_STATES, started_at=datetime.fromtimestamp(booted + since_boot, UTC))
