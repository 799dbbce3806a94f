"""Reconcile: go round the open orders at a gentle pace and notice what the partner or the service changed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from lab_agent.domain.effects import TERMINAL_TASK_STATUSES
from lab_agent.domain.ids import OrderKey, ResourceId, line_key
from lab_agent.domain.journal import Alert, EffectKind, Event, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import ENDED_LINES, LineState, OrderState
from lab_agent.errors import NotReadable
from lab_agent.fhir.write import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.follow import follow
from lab_agent.steps.withdrawal import withdraw_line, withdraw_order

log = structlog.get_logger(__name__)

PAGE = 50
_NOT_YET_JUDGED = frozenset({OrderState.SEEN, OrderState.HELD})
_WRITES_TASKS = frozenset({EffectKind.LINE_TASK, EffectKind.ORDER_TASK})


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Re-reads the Tasks of judged orders. Tasks with open effects are left alone: their own handler looks at them."""

    exchange: Exchange
    store: Store
    clock: Clock
    service: str

    async def run(self) -> int:
        """Go round all open orders once; how many were looked at. Raises what the exchange port raises when it is away."""
        after: OrderKey | None = None
        looked = 0
        while orders := await self._page(after):
            for order in orders:
                looked += await self._look_at(order)
            after = orders[-1].key
        return looked

    async def _page(self, after: OrderKey | None) -> tuple[OrderRecord, ...]:
        return await self.store.run(lambda uow: uow.orders.open_orders(limit=PAGE, after=after))

    async def _look_at(self, order: OrderRecord) -> bool:
        """Look at one order. One that cannot be read any more is told of and left; the others go on (law 9)."""
        if order.state in _NOT_YET_JUDGED:
            return False
        try:
            order_status = task_status((await self.exchange.read("Task", order.task_id)).body)
            tasks = await self.exchange.line_tasks(order.task_id)
        except NotReadable as refusal:
            log.warning("order unreadable", action="reconcile_unreadable", order=order.key, reason=str(refusal))
            return False
        statuses = {str(task.get("id")): task_status(task) for task in tasks}
        await self.store.run(lambda uow: self._compare(uow, order.key, order_status, statuses))
        return True

    def _compare(self, uow: UnitOfWork, key: OrderKey, order_status: str | None, statuses: dict[str, str | None]) -> None:
        now = self.clock.now()
        order = uow.orders.take(key)
        busy = {effect.subject for effect in uow.effects.of_order(key) if effect.kind in _WRITES_TASKS}
        if _ended_by_others(order_status, order.sent_statuses) and key not in busy and order.state is not OrderState.WITHDRAWN:
            withdraw_order(uow, key, now, f"the order-level Task was set to {order_status} by somebody else")
        lines = {line.task_id: line for line in uow.orders.lines(key)}
        for task_id, status in statuses.items():
            line = lines.get(ResourceId(task_id))
            if line is None:
                self._late_line(uow, order, ResourceId(task_id))
            elif _ended_by_others(status, line.sent_statuses) and line.key not in busy and line.state not in ENDED_LINES:
                withdraw_line(uow, line.key, now, f"its Task was set to {status} by somebody else")
        follow(uow, key, now)
        uow.commit()

    def _late_line(self, uow: UnitOfWork, order: OrderRecord, task_id: ResourceId) -> None:
        """A line that came after the order was judged is held in sight: the laboratory has the order without it."""
        now = self.clock.now()
        key = line_key(self.service, task_id)
        uow.orders.add_line(LineRecord(key=key, order=order.key, task_id=task_id, state=LineState.HELD, changed_at=now))
        text = f"line {key} (Task {task_id}) came after the order had been judged; it is held"
        uow.book.tell(Event(order=order.key, at=now, action="late_line", text=text))
        uow.book.open_alert(Alert(key=f"line.{key}.late", text=f"order {order.key}: {text}", opened_at=now))


def _ended_by_others(status: str | None, ours: tuple[str, ...]) -> bool:
    return status in TERMINAL_TASK_STATUSES and status not in ours
