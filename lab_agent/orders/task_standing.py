"""Whether an order is ours to work on now: only requested OrderProcessingTasks and their requested lines are (interface: States).

What somebody else has put on hold, is drafting, or has taken on waits here too, and goes on once it is requested again. A line of
that kind does not hold the others: they go on without it, and once it is requested it is a late line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from lab_agent.exchange.service import Exchange, Json
from lab_agent.fhir.task_update import has_task_code, task_codes, task_status
from lab_agent.orders.fetching import DELETED_STATUS, MAX_PARALLEL_READS, read_or_reject
from lab_agent.orders.line_lifecycle import is_line, is_requested_line
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.queue.jobs import ORDER_TASK_CODE, TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.shared.errors import ServiceRejected
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId
from lab_agent.shared.text import join_limited, shorten
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

DELETED = "deleted"
"""How a Task ended that the service does not have any more (410)."""


def waiting_reason(order_task: Json | None, line_tasks: Collection[Json], line_codes: Collection[str]) -> str | None:
    """Why the order waits, as its Tasks are; None if it goes on. Ended lines are somebody's decision already.

    Lines that are set aside hold it only where no other one is requested. `order_task` is None where it cannot be read.
    """
    problems = [] if order_task is None else [*_order_problems(order_task)]
    problems += [problem for task in line_tasks for problem in _line_problems(task, line_codes)]
    if not any(is_requested_line(task, line_codes) for task in line_tasks):
        problems += [_describe_status(task) for task in line_tasks if is_set_aside(task, line_codes)]
    if not problems:
        return None
    return (
        f"{join_limited(problems)}. The laboratory works on requested Tasks only; the order goes on when they are requested again"
    )


def is_set_aside(task: Json, line_codes: Collection[str]) -> bool:
    """Whether a Task is a line that somebody has put on hold, drafts, or works on: it may be requested yet."""
    return task_status(task) not in {None, TASK_REQUESTED, *TERMINAL_TASK_STATUSES} and is_line(task, line_codes)


@dataclass(frozen=True, slots=True)
class Standing:
    """How the Tasks of an accepted order are right before its handover.

    `ended` is how the order-level Task was ended by somebody else, `ended_lines` the same of lines; `set_aside` are lines with
    the status that somebody else has given them, while others are requested. `waiting` says why the order waits, `unreadable`
    which of its Tasks cannot be read just now.
    """

    ended: str | None = None
    ended_lines: tuple[tuple[LineKey, str], ...] = ()
    set_aside: tuple[tuple[LineKey, str], ...] = ()
    waiting: str | None = None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class TaskInspector:
    """Reads the Tasks of an order once more. `line_codes` is `exchange.line_task_codes`."""

    exchange: Exchange
    line_codes: tuple[str, ...]

    async def inspect(self, order: OrderRecord, lines: Sequence[LineRecord]) -> Standing:
        """Read the order-level Task and the Tasks of these lines. Raises what the exchange port raises if it is unavailable."""
        semaphore = asyncio.Semaphore(MAX_PARALLEL_READS)
        reads = (self._read(task, semaphore) for task in (order.task_id, *(line.task_id for line in lines)))
        order_task, *line_tasks = await asyncio.gather(*reads)
        if (status := _terminal_status(order_task)) is not None:
            return Standing(ended=status)
        ended = [(line.key, _terminal_status(task)) for line, task in zip(lines, line_tasks, strict=True)]
        open_tasks = [task for task in line_tasks if _terminal_status(task) is None]
        waiting = self._waiting_reason(order_task, open_tasks)
        return Standing(
            ended_lines=tuple((key, status) for key, status in ended if status is not None),
            set_aside=() if waiting else tuple(self._find_set_aside(lines, line_tasks)),
            waiting=waiting,
            unreadable=_unreadable_reason((order_task, *open_tasks)),
        )

    def _waiting_reason(self, order_task: Json | ServiceRejected, line_tasks: list[Json | ServiceRejected]) -> str | None:
        readable = [task for task in line_tasks if not isinstance(task, ServiceRejected)]
        return waiting_reason(None if isinstance(order_task, ServiceRejected) else order_task, readable, self.line_codes)

    def _find_set_aside(
        self, lines: Sequence[LineRecord], line_tasks: Sequence[Json | ServiceRejected]
    ) -> Iterator[tuple[LineKey, str]]:
        for line, task in zip(lines, line_tasks, strict=True):
            if not isinstance(task, ServiceRejected) and is_set_aside(task, self.line_codes):
                yield line.key, str(task_status(task))

    async def _read(self, task: ResourceId, semaphore: asyncio.Semaphore) -> Json | ServiceRejected:
        async with semaphore:
            try:
                return (await read_or_reject(self.exchange, "Task", task)).body
            except ServiceRejected as rejection:
                return rejection


def tell_other_tasks(uow: UnitOfWork, key: OrderKey, tasks: Sequence[Json], now: datetime) -> None:
    """Tell once, in the timeline, that the order has Tasks which are not ours to work on."""
    if not tasks:
        return
    known_key = f"order.{key}.other_tasks"
    told = (uow.key_values.get(known_key) or "").split()
    new = {name: task for task in tasks if (name := quote(str(task.get("id")), safe="")) not in told}
    if not new:
        return
    uow.key_values.set(known_key, " ".join([*told, *new]))
    names = join_limited(_describe_other_task(task) for task in new.values())
    text = f"it has Tasks that are left alone, as only requested ones of exchange.line_task_codes are lines: {names}"
    uow.events.add(Event(order=key, at=now, action="other_tasks", text=text))


def _describe_other_task(task: Json) -> str:
    """Say what a Task is that is not ours."""
    codes = ", ".join(sorted(task_codes(task)))
    return f"{_name(task)} ({shorten(codes or 'no code')}, {shorten(task_status(task) or 'no status')})"


def _unreadable_reason(tasks: Iterable[Json | ServiceRejected]) -> str | None:
    reasons = dict.fromkeys(str(task) for task in tasks if isinstance(task, ServiceRejected))
    return join_limited(reasons) if reasons else None


def _terminal_status(task: Json | ServiceRejected) -> str | None:
    if isinstance(task, ServiceRejected):
        return DELETED if _is_deleted(task) else None
    status = task_status(task)
    return status if status in TERMINAL_TASK_STATUSES else None


def _is_deleted(rejection: ServiceRejected) -> bool:
    return rejection.status == DELETED_STATUS


def _order_problems(task: Json) -> Iterator[str]:
    if not has_task_code(task, {ORDER_TASK_CODE}):
        yield f"{_name(task)} is no {ORDER_TASK_CODE}"
    if (status := task_status(task)) != TASK_REQUESTED and status not in TERMINAL_TASK_STATUSES:
        yield _describe_status(task)


def _line_problems(task: Json, line_codes: Collection[str]) -> Iterator[str]:
    status, codes = task_status(task), task_codes(task)
    if status in TERMINAL_TASK_STATUSES:
        return
    if codes and not has_task_code(task, line_codes):
        yield f"{_name(task)} is a {shorten(', '.join(sorted(codes)))}, which exchange.line_task_codes does not list"
        if status not in {TASK_REQUESTED, None}:
            yield _describe_status(task)
    if status is None:
        yield _describe_status(task)


def _name(task: Json) -> str:
    return f"task/{shorten(str(task.get('id')))}"


def _describe_status(task: Json) -> str:
    status = task_status(task)
    told = "without a status that can be read" if status is None else f"'{shorten(status)}', which we did not set"
    return f"{_name(task)} is {told}"
