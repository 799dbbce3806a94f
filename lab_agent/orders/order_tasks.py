"""The Tasks of an order as they are on the service now, beside what is stored of the order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lab_agent.exchange.service import Exchange, Json
from lab_agent.fhir.task_update import task_status
from lab_agent.orders.fetching import DELETED_STATUS, read_or_reject
from lab_agent.orders.line_lifecycle import is_line, is_requested_line, read_line_tasks
from lab_agent.orders.order_assessment import AssessedOrder
from lab_agent.orders.records import HoldCause, LineRecord, OrderHold, OrderRecord
from lab_agent.orders.reopening import find_lines_put_back, is_possibly_submitted
from lab_agent.queue.jobs import TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.shared.errors import ResourceNotReadable, ServiceRejected
from lab_agent.shared.ids import OrderKey, ResourceId, line_key
from lab_agent.shared.state_machines import ENDED_LINES, LINES_WITH_RESULT, UNDECIDED_ORDERS, LineState
from lab_agent.store.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class KnownOrder:
    """An order as it is stored: its lines if it was decided before, and whether the laboratory system may have it."""

    order: OrderRecord
    lines: tuple[LineRecord, ...]
    submitted: bool

    def ended_lines(self, *, except_for: Collection[LineRecord] = ()) -> Mapping[str, LineState]:
        """States of the lines that have ended, by Task id."""
        left_out = {line.task_id for line in except_for}
        return {line.task_id: line.state for line in self.lines if line.state in ENDED_LINES and line.task_id not in left_out}


@dataclass(frozen=True, slots=True)
class OrderTasks:
    """The Tasks of an order now; `back` are lines that had ended and are requested, `new` requested ones that are undecided.

    `set_aside` are open line Tasks that may still be requested: a draft, or one that somebody else has put on hold.
    """

    order_task: Json
    line_tasks: tuple[Json, ...]
    back: tuple[LineRecord, ...]
    new: tuple[Json, ...]
    set_aside: tuple[Json, ...] = ()

    @property
    def status(self) -> str | None:
        """Status of the order-level Task."""
        return task_status(self.order_task)

    @property
    def has_ended(self) -> bool:
        """Whether the order-level Task has ended."""
        return self.status in TERMINAL_TASK_STATUSES

    @property
    def open_lines(self) -> tuple[str, ...]:
        """Ids of the line Tasks that are requested and that nobody works on."""
        return (*(line.task_id for line in self.back), *(str(task.get("id")) for task in self.new))

    @property
    def has_open_lines(self) -> bool:
        """Whether there are such lines."""
        return bool(self.back or self.new)

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """The line Tasks with their statuses: an order is assessed after two equal readings."""
        return fingerprint_of(self.line_tasks)


def fingerprint_of(line_tasks: Iterable[Json]) -> tuple[str, ...]:
    """Line Tasks with their statuses, in a form that two readings are compared by."""
    return tuple(sorted(f"{task.get('id')} {task_status(task)}" for task in line_tasks))


def load_known_order(uow: UnitOfWork, key: OrderKey) -> KnownOrder:
    """Load an order with its lines; one that was never decided has none. Raises `StoreError` if it is unknown."""
    order = uow.orders.get(key)
    if order.state in UNDECIDED_ORDERS and not order.reopened:
        return KnownOrder(order, (), submitted=False)
    return KnownOrder(order, uow.orders.lines(key), is_possibly_submitted(uow, key))


async def read_order_tasks(
    exchange: Exchange, known: KnownOrder, line_codes: Collection[str], *, strict: bool = True
) -> OrderTasks | None:
    """Read the Tasks of an order; None if the service has deleted its order-level Task (410).

    What a search says may be out of date: lines that had ended, or are said to have, are read by their ids, and so are all lines
    of an order that was taken up again. Raises what the exchange port raises; `UnfilteredSearch` only if `strict`.
    """
    try:
        order_task = (await read_or_reject(exchange, "Task", known.order.task_id)).body
    except ResourceNotReadable as unreadable:
        if unreadable.status == DELETED_STATUS:
            return None
        raise
    found = await read_lines(exchange, known, strict=strict)
    statuses = {str(task.get("id")): task_status(task) for task in found}
    decided = {line.task_id for line in known.lines if line.state is not LineState.REQUESTED}
    return OrderTasks(
        order_task=order_task,
        line_tasks=found,
        back=find_lines_put_back(known.lines, statuses, order_offered=task_status(order_task) == TASK_REQUESTED),
        new=tuple(task for task in found if task.get("id") not in decided and is_requested_line(task, line_codes)),
        set_aside=tuple(task for task in found if is_line(task, line_codes) and _is_set_aside(task)),
    )


def _is_set_aside(task: Json) -> bool:
    return task_status(task) not in {TASK_REQUESTED, *TERMINAL_TASK_STATUSES}


async def read_lines(exchange: Exchange, known: KnownOrder, *, strict: bool = True) -> tuple[Json, ...]:
    """Read the line Tasks of an order. Raises what the exchange port raises; `UnfilteredSearch` only if `strict`."""
    search = exchange.line_tasks if strict else lambda task: read_line_tasks(exchange, task)
    return tuple([await _confirm(exchange, known, task) for task in await search(known.order.task_id)])


def find_other_order(uow: UnitOfWork, key: OrderKey, assessed: AssessedOrder) -> OrderHold | None:
    """Why to hold an order of which another one has a line Task, or works on a ProcedureRequest; None if there is none."""
    lines = assessed.received.lines
    tasks = {line_key(assessed.graph.base_url, ResourceId(line.id)): line.id for line in lines}
    requests = [line.request.ref.id for line in lines if line.request and line.task.status not in TERMINAL_TASK_STATUSES]
    others = uow.orders.other_lines(tasks, requests, except_order=key)
    if (same := next((other for other in others if other.key in tasks), None)) is not None:
        text = f"task/{tasks[same.key]} is a line of order {same.order} already. Ask the partner, or refuse this order"
        return OrderHold(HoldCause.IN_OTHER_ORDER, text)
    return OrderHold(HoldCause.IN_OTHER_ORDER, _describe_other_line(others[0])) if others else None


def _describe_other_line(other: LineRecord) -> str:
    about = f"procedurerequest/{other.procedure_request_id}"
    if other.state in LINES_WITH_RESULT:  # nothing takes that back, so this order cannot go on by itself
        return (
            f"{about} has its result already, in order {other.order}, as line {other.key}. Refuse this order; "
            "if the test is wanted once more, the partner orders it with a new ProcedureRequest"
        )
    return (
        f"{about} is done in order {other.order} already, as line {other.key}. "
        "Ask the partner, or refuse this order; it goes on when that line is withdrawn"
    )


async def _confirm(exchange: Exchange, known: KnownOrder, task: Json) -> Json:
    """Read a line Task by its id, where what the search says of it is not enough."""
    has_ended, said_to_have_ended = task.get("id") in known.ended_lines(), task_status(task) in TERMINAL_TASK_STATUSES
    if not (has_ended or said_to_have_ended or known.order.reopened):
        return task
    try:
        return (await read_or_reject(exchange, "Task", ResourceId(str(task.get("id"))))).body
    except ServiceRejected:  # it cannot be read, so nobody knows that it is requested
        return task if said_to_have_ended and not has_ended else {**task, "status": None}
