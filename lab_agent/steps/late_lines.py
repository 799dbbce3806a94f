"""Lines that come after their order was judged: the laboratory has the order without them, so a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.domain.effects import TERMINAL_TASK_STATUSES
from lab_agent.domain.ids import OrderKey, ResourceId, line_key
from lab_agent.domain.journal import Alert, Event, LineRecord
from lab_agent.domain.lifecycle import LineState
from lab_agent.fhir.read import parse_order
from lab_agent.fhir.write import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange, Json
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.fetch import fetch_graph
from lab_agent.steps.withdrawal import late_line_alert_key


@dataclass(frozen=True, slots=True)
class LateLineFinder:
    """Finds open lines that the journal does not know, with what can be told of them."""

    exchange: Exchange
    store: Store
    clock: Clock
    base_url: str

    async def find(self, key: OrderKey, order_task: ResourceId) -> tuple[LineRecord, ...]:
        """Ask the service once more for the lines of an order. Raises what the exchange port raises."""
        return await self.find_in(key, await self.exchange.line_tasks(order_task))

    async def find_in(self, key: OrderKey, tasks: Sequence[Json]) -> tuple[LineRecord, ...]:
        """Late lines among these line Tasks. Raises what the exchange port raises."""
        known = await self.store.run(lambda uow: {line.task_id for line in uow.orders.lines(key)})
        new = [task for task in tasks if task.get("id") not in known and task_status(task) not in TERMINAL_TASK_STATUSES]
        return tuple([await self._to_line_record(key, task) for task in new])

    async def _to_line_record(self, key: OrderKey, task: Json) -> LineRecord:
        task_id = ResourceId(str(task.get("id")))
        graph = await fetch_graph(self.exchange, self.base_url, {}, [task])
        request = parse_order(graph).lines[0].request
        return LineRecord(
            key=line_key(self.base_url, task_id),
            order=key,
            task_id=task_id,
            procedure_request_id=ResourceId(request.ref.id) if request else None,
            item=next((coding.code for coding in request.code.coding), None) if request else None,
            state=LineState.HELD,
            changed_at=self.clock.now(),
        )


def hold_late_line(uow: UnitOfWork, line: LineRecord, now: datetime) -> None:
    """Hold a late line in sight."""
    if uow.orders.line(line.key) is not None:
        return
    uow.orders.add_line(line)
    text = f"line {line.key} (Task {line.task_id}) came after the order had been judged; it is held"
    uow.events.add(Event(order=line.order, at=now, action="late_line", text=text))
    mend = f"enter it in the laboratory system and run `lab-agent orders accept-line {line.key}`, or refuse-line"
    uow.alerts.open(Alert(key=late_line_alert_key(line.key), text=f"order {line.order}: {text}; {mend}", opened_at=now))
