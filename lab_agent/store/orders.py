"""Orders, their lines and their labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal_column, select, union_all, update
from typing_extensions import override

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.records import LabelUse, LineRecord, OrderRecord
from lab_agent.domain.state_machines import (
    AT_LABORATORY,
    LABEL_RELEASING,
    OPEN_LINES,
    ORDERS_BEFORE_HANDOVER,
    UNDONE_LINES,
    WAITING_LINES,
    WITHDRAWN_LINES,
    LineState,
    OrderState,
)
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.errors import AlreadyExistsError, StoreError
from lab_agent.ports.repositories import OrderRepository
from lab_agent.store.column_types import indexable_text
from lab_agent.store.row_mapping import chunked, in_states, insert_new, to_record, to_values, unindexed, upsert
from lab_agent.store.tables import label_uses, lines, orders, work_orders


class SqlOrderRepository(OrderRepository):
    """Orders, their lines and their labels, in the tables of those names."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        asked = {indexable_text(task): task for task in task_ids}
        found: set[str] = set()
        for batch in chunked(asked):
            found.update(self._connection.scalars(select(orders.c.task_id).where(orders.c.task_id.in_(batch))))
        return frozenset(asked[task] for task in found)

    @override
    def add(self, order: OrderRecord) -> None:
        if not insert_new(self._connection, orders, _to_columns(order)):
            raise AlreadyExistsError("The order is stored already; nothing was written.")

    @override
    def get_for_update(self, key: OrderKey) -> OrderRecord:
        row = self._connection.execute(select(orders).where(orders.c.key == key).with_for_update()).mappings().one_or_none()
        if row is None:
            raise _unknown_order(key)
        return to_record(OrderRecord, row)

    @override
    def save(self, order: OrderRecord) -> None:
        if not self._connection.execute(update(orders).where(orders.c.key == order.key).values(**_to_columns(order))).rowcount:
            raise _unknown_order(order.key)

    @override
    def work_orders(self, key: OrderKey) -> tuple[WorkOrder, ...]:
        found = select(work_orders).where(work_orders.c.order_key == key).order_by(work_orders.c.adapter)
        return tuple(to_record(WorkOrder, row) for row in self._connection.execute(found).mappings())

    @override
    def waiting_lines(self) -> Mapping[str, int]:
        # The index has all open lines; its condition is repeated, so that SQLite uses it.
        waiting = (in_states(lines.c.state, OPEN_LINES), in_states(lines.c.state, WAITING_LINES), lines.c.adapter.is_not(None))
        found = select(lines.c.adapter, func.count()).where(*waiting).group_by(lines.c.adapter)
        return dict(map(tuple, self._connection.execute(found)))

    @override
    def save_work_order(self, work_order: WorkOrder) -> None:
        upsert(self._connection, work_orders, to_values(work_order), "order_key", "adapter")

    @override
    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        rows = self._connection.execute(select(lines).where(lines.c.order_key == key).order_by(lines.c.number)).mappings()
        return tuple(to_record(LineRecord, row) for row in rows)

    @override
    def add_line(self, line: LineRecord) -> None:
        if not insert_new(self._connection, lines, to_values(line)):
            raise AlreadyExistsError("The line is stored already; nothing was written.")

    @override
    def save_line(self, line: LineRecord) -> None:
        if not self._connection.execute(update(lines).where(lines.c.key == line.key).values(**to_values(line))).rowcount:
            raise StoreError(f"Unknown line {line.key}.")

    @override
    def line(self, key: LineKey) -> LineRecord | None:
        row = self._connection.execute(select(lines).where(lines.c.key == key)).mappings().one_or_none()
        return None if row is None else to_record(LineRecord, row)

    @override
    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        self._connection.execute(delete(label_uses).where(label_uses.c.order_key == key))
        if labels:
            self._connection.execute(insert(label_uses), [to_values(label) for label in dict.fromkeys(labels)])

    @override
    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        found: list[LabelUse] = []
        for batch in chunked(sorted(set(barcodes))):
            used = (
                select(label_uses)
                .join(lines, lines.c.key == label_uses.c.line)
                .where(
                    label_uses.c.barcode.in_(batch),
                    label_uses.c.order_key != except_order,
                    ~in_states(lines.c.state, LABEL_RELEASING),
                )
                .order_by(label_uses.c.barcode, label_uses.c.number)
            )
            found.extend(to_record(LabelUse, row) for row in self._connection.execute(used).mappings())
        return tuple(found)

    @override
    def by_accession(self, accession: str, adapter: str) -> tuple[OrderKey, ...]:
        found = (
            select(table.c.order_key).where(table.c.accession == accession, table.c.adapter == adapter)
            for table in (work_orders, lines)
        )
        return self._newest_first(orders.c.key.in_(union_all(*found)))

    @override
    def by_barcode(self, barcode: str, adapter: str) -> tuple[OrderKey, ...]:
        used = label_uses.c.barcode == barcode, lines.c.adapter == adapter
        return self._orders_with_label(*used, states=AT_LABORATORY) or self._orders_with_label(*used, states=WITHDRAWN_LINES)

    @override
    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        found = select(orders).where(orders.c.state != literal_column("'closed'")).order_by(orders.c.key).limit(limit)
        if after is not None:
            found = found.where(orders.c.key > after)
        return tuple(to_record(OrderRecord, row) for row in self._connection.execute(found).mappings())

    @override
    def ended_orders(self, task_ids: Collection[str]) -> tuple[OrderRecord, ...]:
        found: list[OrderRecord] = []
        for batch in chunked(sorted({indexable_text(task) for task in task_ids})):
            ended = select(orders).where(
                orders.c.task_id.in_(batch), orders.c.state == OrderState.CLOSED, orders.c.ended_as.is_not(None)
            )
            found.extend(to_record(OrderRecord, row) for row in self._connection.execute(ended).mappings())
        return tuple(found)

    @override
    def orders_to_recheck(self, *, now: datetime, limit: int) -> tuple[OrderRecord, ...]:
        due = (
            select(orders)
            .where(orders.c.recheck_at.is_not(None), orders.c.recheck_at <= now, unindexed(orders.c.state) == OrderState.CLOSED)
            .order_by(orders.c.recheck_at, orders.c.key)
            .limit(limit)
        )
        return tuple(to_record(OrderRecord, row) for row in self._connection.execute(due).mappings())

    @override
    def lines_about(self, procedure_requests: Collection[str], *, except_order: OrderKey) -> tuple[LineRecord, ...]:
        found: list[LineRecord] = []
        for batch in chunked(sorted(set(procedure_requests))):
            about = (
                select(lines)
                .where(
                    lines.c.procedure_request_id.in_(batch),
                    lines.c.order_key != except_order,
                    ~in_states(lines.c.state, UNDONE_LINES),
                )
                .order_by(lines.c.number)
            )
            found.extend(to_record(LineRecord, row) for row in self._connection.execute(about).mappings())
        return tuple(found)

    @override
    def unassessed_since(self) -> datetime | None:
        found: datetime | None = self._connection.scalar(
            select(func.min(orders.c.seen_at)).where(in_states(orders.c.state, ORDERS_BEFORE_HANDOVER))
        )
        return found

    def _orders_with_label(self, *which: ColumnElement[bool], states: frozenset[LineState]) -> tuple[OrderKey, ...]:
        uses = (
            select(label_uses.c.order_key)
            .join(lines, lines.c.key == label_uses.c.line)
            .where(*which, in_states(lines.c.state, states))
        )
        return self._newest_first(orders.c.key.in_(uses))

    def _newest_first(self, which: Any) -> tuple[OrderKey, ...]:
        found = select(orders.c.key).where(which).order_by(orders.c.seen_at.desc(), orders.c.key)
        return tuple(OrderKey(key) for key in self._connection.scalars(found))


def _to_columns(order: OrderRecord) -> dict[str, Any]:
    return {**to_values(order), "requisition_value": order.requisition and order.requisition.value}


def _unknown_order(key: OrderKey) -> StoreError:
    return StoreError(f"Unknown order {key}.")
