"""Task statuses: read, change only our fields, replace the whole resource; never over somebody else's decision (law 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import structlog

from lab_agent.domain.ids import LineKey, OrderKey, ResourceId
from lab_agent.domain.jobs import TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.domain.records import Event, Job, JobKind, LineRecord
from lab_agent.domain.state_machines import ENDED_LINES, OrderState
from lab_agent.domain.text import shorten
from lab_agent.errors import PermanentFailure, StaleVersion, StoreError, TemporaryFailure
from lab_agent.fhir.task_update import build_task_update, is_task_updated, task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.jobs import MAX_CONFLICT_RETRIES, Completion, Lease
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.workflow.line_lifecycle import (
    LateLineFinder,
    advance_order,
    close_order,
    hold_late_line,
    order_task_status,
    withdraw_line,
    withdraw_order,
)

log = structlog.get_logger(__name__)

LATE_LINES_RETRY_INTERVAL = timedelta(minutes=1)
"""How long an order-level Task waits before it is looked at again whether its late lines have ended."""


@dataclass(frozen=True, slots=True)
class DesiredTask:
    """What a Task shall become: `status`, with `outputs` (None: leave them), where only `ours` may be overwritten."""

    task_id: ResourceId
    status: str
    outputs: tuple[str, ...] | None
    own_statuses: frozenset[str]


@dataclass(frozen=True, slots=True)
class TaskUpdateHandler:
    """Brings the Tasks of lines and orders to their ends."""

    exchange: Exchange
    store: Store
    clock: Clock
    late_lines: LateLineFinder

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK})

    async def perform(self, lease: Lease) -> Completion:
        """Read the Task; where it is not so yet and nobody else has decided otherwise, make it so."""
        if unfinished := await self._wait_if_unfinished(lease):
            return unfinished
        for _ in range(MAX_CONFLICT_RETRIES):
            wish = await self.store.run(lambda uow: _desired_task(uow, lease.job))
            saved = await self.exchange.read("Task", wish.task_id)
            if is_task_updated(saved.body, wish.status, wish.outputs):
                return self._complete_status_set(wish.status)
            current = task_status(saved.body)
            if current in TERMINAL_TASK_STATUSES and current not in wish.own_statuses:
                return self._complete_withdrawn(current)
            if current in TERMINAL_TASK_STATUSES and current != wish.status:
                return self._complete_already_ended(current)
            if current not in wish.own_statuses:
                raise PermanentFailure(
                    f"Task {wish.task_id} is in status '{shorten(current or '')}', which we did not set; it is not overwritten. "
                    "Ask the partner, then retry or dismiss this"
                )
            await self._record_sent_status(lease, wish.status)
            body = build_task_update(saved.body, status=wish.status, outputs=wish.outputs)
            try:
                await self.exchange.update("Task", wish.task_id, body, version=saved.version)
            except StaleVersion:
                continue
            log.info("Task set", action="task_set", order=lease.job.order, status=wish.status)
            return self._complete_status_set(wish.status)
        raise TemporaryFailure(f"the Task was changed by somebody else {MAX_CONFLICT_RETRIES} times while we wrote it")

    verify = perform  # reading first is the look

    async def _wait_if_unfinished(self, lease: Lease) -> Completion | None:
        """Let the order-level Task wait while a line of its order is open: one that came late would be lost with its end."""
        job = lease.job
        if job.kind is not JobKind.UPDATE_ORDER_TASK or job.payload["status"] not in TERMINAL_TASK_STATUSES:
            return None
        key = OrderKey(job.target)
        order = await self.store.run(lambda uow: uow.orders.get_for_update(key))
        late = await self.late_lines.find(key, order.task_id)
        lines = (*late, *await self.store.run(lambda uow: uow.orders.lines(key)))
        if any(line.state not in ENDED_LINES for line in lines):
            return self._reschedule_for_late_lines(late)
        if order_task_status(lines) != job.payload["status"]:
            now = self.clock.now()
            return lambda _, current: current.mark_obsolete(now, "a line that came late has given the order another end")
        return None

    def _reschedule_for_late_lines(self, late: tuple[LineRecord, ...]) -> Completion:
        now = self.clock.now()
        reason = "a line of the order came late and waits for a person"

        def write(uow: UnitOfWork, job: Job) -> Job:
            for line in late:
                hold_late_line(uow, line, now)
            order = uow.orders.get_for_update(_get_order_key(job))
            if order.state is OrderState.REPORTED:
                uow.orders.save(order.transition_to(OrderState.HANDED_OVER, now, reason))
            return job.reschedule(now, now + LATE_LINES_RETRY_INTERVAL, reason)

        return write

    async def _record_sent_status(self, lease: Lease, status: str) -> None:
        """Commit that we send this status, before it is sent: from then on it is ours, answered or not."""
        subject, kind = lease.job.target, lease.job.kind

        def write(uow: UnitOfWork) -> None:
            if kind is JobKind.UPDATE_ORDER_TASK:
                order = uow.orders.get_for_update(OrderKey(subject))
                if status not in order.sent_statuses:
                    uow.orders.save(replace(order, sent_statuses=(*order.sent_statuses, status)))
                return
            line = uow.orders.line(LineKey(subject))
            if line is not None and status not in line.sent_statuses:
                uow.orders.save_line(replace(line, sent_statuses=(*line.sent_statuses, status)))

        await lease.mark_started(write)

    def _complete_status_set(self, status: str) -> Completion:
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            order = _get_order_key(job)
            uow.events.add(Event(order=order, at=now, action="task_set", text=f"{_task_name(job)} is {status}"))
            if status in TERMINAL_TASK_STATUSES:
                if job.kind is JobKind.UPDATE_ORDER_TASK:
                    close_order(uow, order, now, f"order-level Task is {status}")
                else:
                    advance_order(uow, order, now, completing=job)
            return job.complete(now)

        return write

    def _complete_already_ended(self, status: str) -> Completion:
        """Leave alone a Task that we have ended already: nothing leads out of a terminal status."""
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            advance_order(uow, _get_order_key(job), now, completing=job)
            return job.mark_obsolete(now, f"we had set the Task to {status} already")

        return write

    def _complete_withdrawn(self, status: str) -> Completion:
        now = self.clock.now()
        reason = f"the partner or the service had set the Task to {status}"

        def write(uow: UnitOfWork, job: Job) -> Job:
            order = _get_order_key(job)
            uow.events.add(
                Event(order=order, at=now, action="task_unchanged", text=f"{_task_name(job)} is left as it is: {reason}")
            )
            if job.kind is JobKind.UPDATE_ORDER_TASK:
                withdraw_order(uow, order, now, reason)
            else:
                withdraw_line(uow, LineKey(job.target), now, reason)
            advance_order(uow, order, now, completing=job)
            return job.mark_obsolete(now, reason)

        return write


def _get_order_key(job: Job) -> OrderKey:
    if job.order is None:
        raise StoreError(f"effect {job.id} names no order")
    return job.order


def _task_name(job: Job) -> str:
    return "order-level Task" if job.kind is JobKind.UPDATE_ORDER_TASK else f"Task of line {job.target}"


def _desired_task(uow: UnitOfWork, job: Job) -> DesiredTask:
    status = job.payload["status"]
    if job.kind is JobKind.UPDATE_ORDER_TASK:
        order = uow.orders.get_for_update(OrderKey(job.target))
        return DesiredTask(order.task_id, status, None, frozenset({TASK_REQUESTED, *order.sent_statuses}))
    line = uow.orders.line(LineKey(job.target))
    if line is None:
        raise PermanentFailure(f"line {job.target} is not in the journal")
    outputs = line.outputs if status in TERMINAL_TASK_STATUSES and line.outputs else None
    return DesiredTask(line.task_id, status, outputs, frozenset({TASK_REQUESTED, *line.sent_statuses}))
