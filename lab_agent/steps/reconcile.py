"""Reconcile: go round the open orders at a gentle pace and notice what the partner or the service changed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from lab_agent.domain.effects import TERMINAL_TASK_STATUSES
from lab_agent.domain.ids import OrderKey, ResourceId, line_key
from lab_agent.domain.journal import Alert, EffectKind, Event, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import ENDED_LINES, LineState, OrderState
from lab_agent.errors import ServiceRefusal
from lab_agent.fhir.read import receive
from lab_agent.fhir.write import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange, Json
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.fetch import fetch_graph
from lab_agent.steps.follow import follow
from lab_agent.steps.withdrawal import late_alert, withdraw_line, withdraw_order

log = structlog.get_logger(__name__)

PAGE = 50
_NOT_YET_JUDGED = frozenset({OrderState.SEEN, OrderState.HELD})
_MAY_GROW = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER, OrderState.REPORTED, OrderState.REFUSED})
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
            late = await self._late_lines(order, tasks)
        except ServiceRefusal as refusal:
            log.warning("order unreadable", action="reconcile_unreadable", order=order.key, reason=str(refusal))
            return False
        statuses = {str(task.get("id")): task_status(task) for task in tasks}
        await self.store.run(lambda uow: self._compare(uow, order.key, order_status, statuses, late))
        return True

    async def _late_lines(self, order: OrderRecord, tasks: Sequence[Json]) -> tuple[LineRecord, ...]:
        """Open lines that the journal does not know, with what can be told of them."""
        known = await self.store.run(lambda uow: {line.task_id for line in uow.orders.lines(order.key)})
        new = [task for task in tasks if task.get("id") not in known and task_status(task) not in TERMINAL_TASK_STATUSES]
        return tuple([await self._late_line(order, task) for task in new])

    async def _late_line(self, order: OrderRecord, task: Json) -> LineRecord:
        task_id = ResourceId(str(task.get("id")))
        graph = await fetch_graph(self.exchange, self.service, {}, [task])
        request = receive(graph).lines[0].request
        return LineRecord(
            key=line_key(self.service, task_id),
            order=order.key,
            task_id=task_id,
            procedure_request_id=ResourceId(request.ref.id) if request else None,
            item=next((coding.code for coding in request.code.coding), None) if request else None,
            state=LineState.HELD,
            changed_at=self.clock.now(),
        )

    def _compare(
        self,
        uow: UnitOfWork,
        key: OrderKey,
        order_status: str | None,
        statuses: dict[str, str | None],
        late: tuple[LineRecord, ...],
    ) -> None:
        now = self.clock.now()
        order = uow.orders.take(key)
        for line in late if order.state in _MAY_GROW else ():
            self._hold_late_line(uow, line)
        busy = {effect.subject for effect in uow.effects.of_order(key) if effect.kind in _WRITES_TASKS}
        if _ended_by_others(order_status, order.sent_statuses) and key not in busy and order.state is not OrderState.WITHDRAWN:
            withdraw_order(uow, key, now, f"the order-level Task was set to {order_status} by somebody else")
        lines = {line.task_id: line for line in uow.orders.lines(key)}
        for task_id, status in statuses.items():
            known = lines.get(ResourceId(task_id))
            if known is None or known.key in busy or known.state in ENDED_LINES:
                continue
            if _ended_by_others(status, known.sent_statuses):
                withdraw_line(uow, known.key, now, f"its Task was set to {status} by somebody else")
        follow(uow, key, now)
        uow.commit()

    def _hold_late_line(self, uow: UnitOfWork, line: LineRecord) -> None:
        """A line that came after the order was judged is held in sight: the laboratory has the order without it."""
        if uow.orders.line(line.key) is not None:
            return
        now = self.clock.now()
        uow.orders.add_line(line)
        text = f"line {line.key} (Task {line.task_id}) came after the order had been judged; it is held"
        uow.book.tell(Event(order=line.order, at=now, action="late_line", text=text))
        mend = f"enter it in the laboratory system and run `lab-agent orders accept-line {line.key}`, or refuse-line"
        uow.book.open_alert(Alert(key=late_alert(line.key), text=f"order {line.order}: {text}; {mend}", opened_at=now))


def _ended_by_others(status: str | None, ours: tuple[str, ...]) -> bool:
    return status in TERMINAL_TASK_STATUSES and status not in ours
