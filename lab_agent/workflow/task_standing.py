"""Whether an order is ours to work on now: only requested OrderProcessingTasks and their requested lines are (interface: States).

What somebody else has put on hold, is drafting, or has taken on waits here too, and goes on once it is requested again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lab_agent.domain.ids import LineKey, ResourceId
from lab_agent.domain.jobs import ORDER_TASK_CODE, TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.domain.records import LineRecord, OrderRecord
from lab_agent.domain.text import join_limited, shorten
from lab_agent.errors import ServiceRejected
from lab_agent.fhir.task_update import has_task_code, task_codes, task_status
from lab_agent.ports.exchange import Exchange, Json
from lab_agent.workflow.fetching import DELETED_STATUS, MAX_PARALLEL_READS, read_or_reject

DELETED = "deleted"
"""How a Task ended that the service does not have any more (410)."""


def waiting_reason(order_task: Json | None, line_tasks: Iterable[Json], line_codes: Collection[str]) -> str | None:
    """Why the order waits, as its Tasks are; None if all of it may be worked on. Ended lines are somebody's decision already.

    `order_task` is None where it cannot be read.
    """
    problems = [] if order_task is None else [*_order_problems(order_task)]
    problems += [problem for task in line_tasks for problem in _line_problems(task, line_codes)]
    if not problems:
        return None
    return (
        f"{join_limited(problems)}. The laboratory works on requested Tasks only; the order goes on when they are requested again"
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """How the Tasks of an accepted order are right before its handover.

    `ended` is how the order-level Task was ended by somebody else, `ended_lines` the same of lines. `waiting` says why the order
    waits, `unreadable` which of its Tasks cannot be read just now.
    """

    ended: str | None = None
    ended_lines: tuple[tuple[LineKey, str], ...] = ()
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
        return Standing(
            ended_lines=tuple((key, status) for key, status in ended if status is not None),
            waiting=self._waiting_reason(order_task, open_tasks),
            unreadable=_unreadable_reason((order_task, *open_tasks)),
        )

    def _waiting_reason(self, order_task: Json | ServiceRejected, line_tasks: list[Json | ServiceRejected]) -> str | None:
        readable = [task for task in line_tasks if not isinstance(task, ServiceRejected)]
        return waiting_reason(None if isinstance(order_task, ServiceRejected) else order_task, readable, self.line_codes)

    async def _read(self, task: ResourceId, semaphore: asyncio.Semaphore) -> Json | ServiceRejected:
        async with semaphore:
            try:
                return (await read_or_reject(self.exchange, "Task", task)).body
            except ServiceRejected as rejection:
                return rejection


def describe_other_task(task: Json) -> str:
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
        yield f"{_name(task)} is {_describe(status)}"


def _line_problems(task: Json, line_codes: Collection[str]) -> Iterator[str]:
    status, codes = task_status(task), task_codes(task)
    if status in TERMINAL_TASK_STATUSES:
        return
    if codes and not has_task_code(task, line_codes):
        yield f"{_name(task)} is a {shorten(', '.join(sorted(codes)))}, which exchange.line_task_codes does not list"
    if status != TASK_REQUESTED:
        yield f"{_name(task)} is {_describe(status)}"


def _name(task: Json) -> str:
    return f"task/{shorten(str(task.get('id')))}"


def _describe(status: str | None) -> str:
    return "without a status that can be read" if status is None else f"'{shorten(status)}', which we did not set"
