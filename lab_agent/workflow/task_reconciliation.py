"""Reconciliation: re-read the Tasks of open orders, and notice what the partner or the service changed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.jobs import TERMINAL_TASK_STATUSES
from lab_agent.domain.records import JobKind, LineRecord, OrderRecord
from lab_agent.domain.state_machines import ENDED_LINES, UNDECIDED_ORDERS, OrderState
from lab_agent.errors import LabAgentError, StoreUnreachableError, TemporaryFailure
from lab_agent.fhir.task_update import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.workflow.line_lifecycle import (
    LateLineFinder,
    advance_order,
    hold_late_line,
    read_line_tasks,
    withdraw_line,
    withdraw_order,
)

log = structlog.get_logger(__name__)

PAGE_SIZE = 50
_CAN_GET_LINES = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER, OrderState.REPORTED, OrderState.REJECTED})
_TASK_JOBS = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK})


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Re-reads the Tasks of decided orders. Tasks with open jobs are left alone: their own handler reads them."""

    exchange: Exchange
    store: Store
    clock: Clock
    late_lines: LateLineFinder

    async def run(self) -> int:
        """Check all open orders once; how many were checked. Raises what the exchange port raises if it is unavailable."""
        after: OrderKey | None = None
        checked = 0
        while orders := await self._load_page(after):
            for order in orders:
                checked += await self._try_reconcile(order)
            after = orders[-1].key
        return checked

    async def _try_reconcile(self, order: OrderRecord) -> bool:
        """Check one order; what is wrong with it alone is logged, and the others go on (law 9)."""
        try:
            return await self._reconcile_order(order)
        except (TemporaryFailure, StoreUnreachableError):
            raise
        except LabAgentError as exc:
            log.warning("order not reconciled", action="reconcile_failed", order=order.key, reason=str(exc))
            return False

    async def _load_page(self, after: OrderKey | None) -> tuple[OrderRecord, ...]:
        return await self.store.run(lambda uow: uow.orders.open_orders(limit=PAGE_SIZE, after=after))

    async def _reconcile_order(self, order: OrderRecord) -> bool:
        """Check one order, if it is decided. Raises what the ports raise."""
        if order.state in UNDECIDED_ORDERS:
            return False
        order_status = task_status((await self.exchange.read("Task", order.task_id)).body)
        tasks = await read_line_tasks(self.exchange, order.task_id)
        late = await self.late_lines.find_in(order.key, tasks)
        statuses = {str(task.get("id")): task_status(task) for task in tasks}
        await self.store.run(lambda uow: self._compare(uow, order.key, order_status, statuses, late))
        return True

    def _compare(
        self,
        uow: UnitOfWork,
        key: OrderKey,
        order_status: str | None,
        statuses: dict[str, str | None],
        late: tuple[LineRecord, ...],
    ) -> None:
        now = self.clock.now()
        order = uow.orders.get_for_update(key)
        for line in late if order.state in _CAN_GET_LINES else ():
            hold_late_line(uow, line, now)
        busy = {job.target for job in uow.jobs.list_for_order(key) if job.kind in _TASK_JOBS}
        if _is_ended_by_others(order_status, order.sent_statuses) and key not in busy and order.state is not OrderState.WITHDRAWN:
            withdraw_order(uow, key, now, f"the order-level Task was set to {order_status} by somebody else")
        lines = {line.task_id: line for line in uow.orders.lines(key)}
        for task_id, status in statuses.items():
            known = lines.get(ResourceId(task_id))
            if known is None or known.key in busy or known.state in ENDED_LINES:
                continue
            if _is_ended_by_others(status, known.sent_statuses):
                withdraw_line(uow, known.key, now, f"its Task was set to {status} by somebody else")
        advance_order(uow, key, now)
        uow.commit()


def _is_ended_by_others(status: str | None, ours: tuple[str, ...]) -> bool:
    return status in TERMINAL_TASK_STATUSES and status not in ours
