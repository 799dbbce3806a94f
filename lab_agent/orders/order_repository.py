"""Orders, their lines and their labels."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

from sqlalchemy import BindParameter, Text, bindparam, delete, func, insert, literal_column, select, union_all
from sqlalchemy.dialects import postgresql, sqlite

from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord, WorkOrder
from lab_agent.shared.errors import AlreadyExistsError, StoreError
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import (
    AT_LABORATORY,
    LABEL_RELEASING,
    OPEN_LINES,
    ORDERS_BEFORE_HANDOVER,
    UNDONE_LINES,
    WAITING_LINES,
    WITHDRAWN_LINES,
    OrderState,
)
from lab_agent.store.column_types import indexable_text
from lab_agent.store.row_mapping import RecordMapping, changes, chunked, in_states, unindexed, update_row, upsert_by
from lab_agent.store.search_tables import order_search
from lab_agent.store.session import Query, Session, Values, Write
from lab_agent.store.tables import label_uses, lines, orders, work_orders

_ORDERS = RecordMapping(OrderRecord, orders)
_LINES = RecordMapping(LineRecord, lines)
_WORK_ORDERS = RecordMapping(WorkOrder, work_orders)
_LABELS = RecordMapping(LabelUse, label_uses)

_KEY: BindParameter[str] = bindparam("of")
_ORDER = Query(select(*_ORDERS.columns).where(orders.c.key == _KEY))
_ORDER_LOCKED = Query(select(*_ORDERS.columns).where(orders.c.key == _KEY).with_for_update())
_ORDERS_OF = Query(select(*_ORDERS.columns).where(orders.c.key.in_(bindparam("keys", expanding=True))))
_LINES_OF_ORDER = Query(select(*_LINES.columns).where(lines.c.order_key == _KEY).order_by(lines.c.number))
_SAME_ORDER = select(lines.c.order_key).where(lines.c.key == _KEY).scalar_subquery()
_LINES_BESIDE = Query(select(*_LINES.columns).where(lines.c.order_key == _SAME_ORDER).order_by(lines.c.number))
_WORK_ORDERS_OF_ORDER = Query(
    select(*_WORK_ORDERS.columns).where(work_orders.c.order_key == _KEY).order_by(work_orders.c.adapter)
)
_KNOWN_TASKS = Query(select(orders.c.task_id).where(orders.c.task_id.in_(bindparam("tasks", expanding=True))))
_OPEN_ORDERS = Query(
    select(*_ORDERS.columns)
    .where(orders.c.state != literal_column("'closed'"), orders.c.key > bindparam("after"))
    .order_by(orders.c.key)
    .limit(bindparam("at_most"))
)
_HELD_ORDERS = Query(
    select(*_ORDERS.columns)
    .where(in_states(orders.c.state, {OrderState.HELD}), orders.c.hold_cause == bindparam("held_for"))
    .where(orders.c.key > bindparam("after"))
    .order_by(orders.c.key)
    .limit(bindparam("at_most"))
)
_ENDED_ORDERS = Query(
    select(*_ORDERS.columns).where(
        orders.c.task_id.in_(bindparam("tasks", expanding=True)),
        orders.c.state == OrderState.CLOSED,
        orders.c.ended_as.is_not(None),
    )
)
_ORDERS_TO_RECHECK = Query(
    select(*_ORDERS.columns)
    .where(orders.c.recheck_at.is_not(None), orders.c.recheck_at <= bindparam("now"))
    .where(unindexed(orders.c.state) == OrderState.CLOSED)
    .order_by(orders.c.recheck_at, orders.c.key)
    .limit(bindparam("at_most"))
)
_UNASSESSED_SINCE = Query(select(func.min(orders.c.seen_at)).where(in_states(orders.c.state, ORDERS_BEFORE_HANDOVER)))
_WAITING_LINES = Query(
    select(lines.c.adapter, func.count())
    # The index has all open lines; its condition is repeated, so that SQLite uses it.
    .where(in_states(lines.c.state, OPEN_LINES), in_states(lines.c.state, WAITING_LINES), lines.c.adapter.is_not(None))
    .group_by(lines.c.adapter)
)
_LABELS_IN_USE = Query(
    select(*_LABELS.columns)
    .join(lines, lines.c.key == label_uses.c.line)
    .where(label_uses.c.barcode.in_(bindparam("barcodes", expanding=True)), label_uses.c.order_key != bindparam("not_of"))
    .where(~in_states(lines.c.state, LABEL_RELEASING))
    .order_by(label_uses.c.barcode, label_uses.c.number)
)
_OTHER_LINES = Query(
    select(*_LINES.columns)
    .where(
        lines.c.key.in_(bindparam("same", expanding=True))
        | (lines.c.procedure_request_id.in_(bindparam("requests", expanding=True)) & ~in_states(lines.c.state, UNDONE_LINES))
    )
    .where(lines.c.order_key != bindparam("not_of"))
    .order_by(lines.c.number)
)
_LOCK_LABELS = Query(select(func.pg_advisory_xact_lock(0x1AB)))
"""The number of the lock is ours alone; those of ordering keys have two numbers."""


def _select_newest_first(keys: Any) -> Query:
    return Query(select(orders.c.key).where(orders.c.key.in_(keys)).order_by(orders.c.seen_at.desc(), orders.c.key))


_BY_ACCESSION = _select_newest_first(
    union_all(
        *(
            select(table.c.order_key).where(table.c.accession == bindparam("name"), table.c.adapter == bindparam("adapter_name"))
            for table in (work_orders, lines)
        )
    )
)
_BY_BARCODE = _select_newest_first(
    select(label_uses.c.order_key)
    .join(lines, lines.c.key == label_uses.c.line)
    .where(label_uses.c.barcode == bindparam("name"), lines.c.adapter == bindparam("adapter_name"))
    .where(in_states(lines.c.state, AT_LABORATORY | WITHDRAWN_LINES))
)


def _unknown_order(key: str = "") -> StoreError:
    return StoreError(f"Unknown order {key}." if key else "Unknown order.")


_ADD_ORDER = Write.insert(orders, lambda insert: insert.on_conflict_do_nothing().returning(literal_column("1")))
_ADD_NEW_ORDERS = Write.insert(orders, lambda insert: insert.on_conflict_do_nothing().returning(orders.c.key))
_SAVE_ORDER = Write.of(orders, update_row(orders), missing=_unknown_order)
_ADD_LINE = Write.of(lines, insert(lines).inline())
_SAVE_LINE = Write.of(lines, update_row(lines), missing=lambda: StoreError("Unknown line."))
_SAVE_WORK_ORDER = Write.insert(work_orders, upsert_by("order_key", "adapter"))
_REMOVE_LABELS = Write.of(label_uses, delete(label_uses).where(label_uses.c.order_key == _KEY))
_ADD_LABEL = Write.of(label_uses, insert(label_uses).inline())


def _search_terms(join: Any, newline: Any) -> Any:
    """What an order is found by, made of its rows (`OrderSearchRow`); `join` is the database's function that joins texts."""

    def of_table(value: Any, key: Any) -> Any:
        joined = select(join(value, newline)).where(key == orders.c.key).scalar_subquery()
        return func.coalesce(newline.concat(joined), "")

    line = lines.c.key.concat(newline).concat(lines.c.task_id).concat(func.coalesce(newline.concat(lines.c.accession), ""))
    own = orders.c.key.concat(newline).concat(orders.c.task_id)
    return (
        own.concat(func.coalesce(newline.concat(orders.c.requisition_value), ""))
        .concat(of_table(line, lines.c.order_key))
        .concat(of_table(label_uses.c.barcode, label_uses.c.order_key))
        .concat(of_table(work_orders.c.accession, work_orders.c.order_key))
    )


def _upsert_terms(start: Any, terms: Any) -> Any:
    made = start.from_select(["order_key", "terms"], select(orders.c.key, terms).where(orders.c.key == _KEY))
    changed = order_search.c.terms != made.excluded.terms
    return made.on_conflict_do_update(index_elements=["order_key"], set_={"terms": made.excluded.terms}, where=changed)


_TERMS = {
    "sqlite": _search_terms(func.group_concat, literal_column("char(10)", Text())),
    "postgresql": _search_terms(func.string_agg, literal_column("chr(10)", Text())),
}
INDEX_ORDER = Write(
    order_search,
    {
        "sqlite": _upsert_terms(sqlite.insert(order_search), _TERMS["sqlite"]),
        "postgresql": _upsert_terms(postgresql.insert(order_search), _TERMS["postgresql"]),
    },
)


class OrderRepository:
    """Orders, their lines and their labels, in the tables of those names.

    What is read of an order before its lock is read again after it, as somebody else may have had the lock until then.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        """Which of these order-level Tasks are stored."""
        asked = {indexable_text(task): task for task in task_ids}
        found: set[str] = set()
        for batch in chunked(asked):
            found.update(self._session.execute(_KNOWN_TASKS, {"tasks": batch}).scalars())
        return frozenset(asked[task] for task in found)

    def add(self, order: OrderRecord) -> None:
        """Write a new order. Raises `AlreadyExistsError`."""
        if self._session.send(_ADD_ORDER, _to_columns(order)).scalar() is None:
            raise AlreadyExistsError("The order is stored already; nothing was written.")
        self._session.remember((orders, order.key), order)

    def add_new(self, orders: Sequence[OrderRecord]) -> frozenset[OrderKey]:
        """Write those of the orders that are not stored yet; gives which these were."""
        rows = [_to_columns(order) for order in orders]
        return frozenset(map(OrderKey, self._session.send(_ADD_NEW_ORDERS, rows).scalars()) if rows else ())

    def prefetch(self, keys: Collection[OrderKey]) -> None:
        """Read orders at once that are looked at (`get`) next, in a block of `reading`."""
        unread = sorted(key for key in set(keys) if self._session.known((orders, key)) is None)
        for batch in chunked(unread) if len(unread) > 1 else ():
            for order in _ORDERS.to_records(self._session.execute(_ORDERS_OF, {"keys": batch})):
                self._session.remember((orders, order.key), order)

    def get(self, key: OrderKey) -> OrderRecord:
        """Read an order that is only looked at. Raises `StoreError` if it is unknown."""
        known: OrderRecord | None = self._session.known((orders, key))
        return known or self._find(_ORDER, key)

    def get_for_update(self, key: OrderKey) -> OrderRecord:
        """Read an order and lock it until the unit of work ends. Raises `StoreError` if it is unknown."""
        known: OrderRecord | None = self._session.known((orders, key))
        return known or self._lock(key)

    def lock(self, key: OrderKey) -> None:
        """Lock an order as `get_for_update` does, for its lines alone; free of charge where there is one writer at a time."""
        if self._session.kind == "postgresql":  # on SQLite, the transaction has the lock of all
            self.get_for_update(key)

    def save(self, order: OrderRecord) -> None:
        """Write a changed order. Raises `StoreError` if it is unknown."""
        known = self._session.known((orders, order.key))
        if known == order:
            return
        self._session.put(_SAVE_ORDER, order.key, changes(_to_columns(order)))
        if known is not None:  # and it is locked
            self._session.remember((orders, order.key), order)

    def work_orders(self, key: OrderKey) -> tuple[WorkOrder, ...]:
        """The parts of an order, one for each laboratory system, by the names of their adapters."""
        return tuple(part for _, part in sorted(self._load_work_orders(key).items()))

    def waiting_lines(self) -> Mapping[str, int]:
        """How many lines wait for a result, by the adapters of the laboratory systems that they went to, or go to."""
        return dict(map(tuple, self._session.execute(_WAITING_LINES)))

    def save_work_order(self, work_order: WorkOrder) -> None:
        """Write or replace a part of an order. Raises `StoreError` if the order is unknown."""
        known: dict[str, WorkOrder] | None = self._session.known((work_orders, work_order.order))
        if known is not None and known.get(work_order.adapter) == work_order:
            return
        of = (work_order.order, work_order.adapter)
        self._put(work_order.order, _SAVE_WORK_ORDER, of, _WORK_ORDERS.to_values(work_order))
        former = None if known is None else known.get(work_order.adapter)
        if work_order.accession != (former and former.accession):
            self._index(work_order.order)
        if known is not None:
            known[work_order.adapter] = work_order

    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        """The order's lines, in the order in which they were added."""
        return tuple(self._load_lines(key).values())

    def expect_nothing_of(self, key: OrderKey) -> None:
        """Say that an order was never decided, so that it has no lines, parts and labels yet: none are looked for."""
        for table in (lines, work_orders, label_uses):
            self._session.remember((table, key), {})

    def add_line(self, line: LineRecord) -> None:
        """Write a new line. Raises `AlreadyExistsError`, and `StoreError` if its order is unknown."""
        known = self._load_lines(line.order)
        if line.key in known:
            raise AlreadyExistsError("The line is stored already; nothing was written.")
        self._session.put(_ADD_LINE, line.key, _LINES.to_values(line))
        known[line.key] = line

    def save_line(self, line: LineRecord) -> None:
        """Write a changed line; it was read behind the order's lock (`get_for_update`). Raises `StoreError` if it is unknown."""
        known: dict[LineKey, LineRecord] | None = self._session.known((lines, line.order))
        if known is not None and known.get(line.key) == line:
            return
        if self._session.is_pending(_ADD_LINE, line.key):
            self._session.put(_ADD_LINE, line.key, _LINES.to_values(line))
        else:
            self._put(line.order, _SAVE_LINE, line.key, changes(_LINES.to_values(line)))
            if line.accession is not None and (known is None or known[line.key].accession != line.accession):
                self._index(line.order)
        if known is not None:
            known[line.key] = line

    def line(self, key: LineKey) -> LineRecord | None:
        """One line."""
        known: dict[LineKey, LineRecord]
        for known in self._session.known_in(lines):
            if key in known:
                return known[key]
        beside = {line.key: line for line in _LINES.to_records(self._session.execute(_LINES_BESIDE, {"of": key}))}
        if key not in beside:
            return None
        self._session.remember((lines, beside[key].order), beside)  # who asks for one line asks for the others, too
        return beside[key]

    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        """Replace the labels of an order. Raises `StoreError` if it is unknown."""
        if self._session.known((label_uses, key)) is None:
            self._session.send(_REMOVE_LABELS, {"of": key})
        if labels:
            self._session.send(_ADD_LABEL, [_LABELS.to_values(label) for label in dict.fromkeys(labels)])
        self._index(key)

    def lock_labels(self) -> None:
        """Wait until no other unit of work decides about labels: two orders decided at once must not both find a label free."""
        if self._session.kind == "postgresql":  # on SQLite, there is one writer at a time in any case
            self._session.execute(_LOCK_LABELS)

    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        """Uses of these barcodes by lines of other orders that are not rejected or withdrawn."""
        found: list[LabelUse] = []
        for batch in chunked(sorted(set(barcodes))):
            rows = self._session.execute(_LABELS_IN_USE, {"barcodes": batch, "not_of": except_order})
            found.extend(_LABELS.to_records(rows))
        return tuple(found)

    def by_accession(self, accession: str, adapter: str) -> tuple[OrderKey, ...]:
        """Orders whose part at this laboratory system carries this accession, itself or on a line; newest first."""
        return self._fetch_keys(_BY_ACCESSION, accession, adapter)

    def by_barcode(self, barcode: str, adapter: str) -> tuple[OrderKey, ...]:
        """Orders whose accepted or withdrawn lines at this laboratory system use this label, newest first."""
        return self._fetch_keys(_BY_BARCODE, barcode, adapter)

    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        """Orders that are not closed, by key, so that all can be gone through in portions."""
        return _ORDERS.to_records(self._session.execute(_OPEN_ORDERS, {"after": after or "", "at_most": limit}))

    def ended_orders(self, task_ids: Collection[str]) -> tuple[OrderRecord, ...]:
        """Closed orders among these order-level Tasks whose Task had ended; those that were left alone are none."""
        found: list[OrderRecord] = []
        for batch in chunked(sorted({indexable_text(task) for task in task_ids})):
            found.extend(_ORDERS.to_records(self._session.execute(_ENDED_ORDERS, {"tasks": batch})))
        return tuple(found)

    def orders_to_recheck(self, *, now: datetime, limit: int) -> tuple[OrderRecord, ...]:
        """Closed orders whose `recheck_at` has come, longest due first."""
        return _ORDERS.to_records(self._session.execute(_ORDERS_TO_RECHECK, {"now": now, "at_most": limit}))

    def other_lines(
        self, keys: Collection[LineKey], procedure_requests: Collection[str], *, except_order: OrderKey
    ) -> tuple[LineRecord, ...]:
        """Lines of other orders with these keys, whatever became of them, and those about these ProcedureRequests that are done
        or being done; in the order in which they were added.
        """
        found: list[LineRecord] = []
        for same, requests in zip_longest(chunked(sorted(set(keys))), chunked(sorted(set(procedure_requests)))):
            asked = {"same": same or (), "requests": requests or (), "not_of": except_order}
            found.extend(_LINES.to_records(self._session.execute(_OTHER_LINES, asked)))
        return tuple(dict.fromkeys(found))

    def held(self, cause: str, *, after: OrderKey | None, limit: int) -> tuple[OrderRecord, ...]:
        """Orders that are held for this cause, by key and from after one on, so that all can be gone through in portions."""
        asked = {"held_for": cause, "after": after or "", "at_most": limit}
        return _ORDERS.to_records(self._session.execute(_HELD_ORDERS, asked))

    def unassessed_since(self) -> datetime | None:
        """When the oldest order was seen that is not assessed yet (seen, fetched or held); None if there is none."""
        found: datetime | None = self._session.execute(_UNASSESSED_SINCE).scalar()
        return found

    def _index(self, key: OrderKey) -> None:
        """Let the order be found by its numbers as they are at the commit."""
        self._session.put(INDEX_ORDER, key, {"of": key})

    def _put(self, order: OrderKey, write: Write, key: Hashable, values: Values) -> None:
        """Write a row of an order: at the commit if the order is locked, since nobody else writes it until then; else now.

        A row that waited without the lock would go over what others have committed meanwhile.
        """
        self._session.put(write, key, values)
        if self._session.kind == "postgresql" and self._session.known((orders, order)) is None:
            self._session.flush()

    def _lock(self, key: OrderKey) -> OrderRecord:
        if self._session.kind == "postgresql":  # on SQLite, nobody else has written since the transaction began
            self._session.forget((lines, key), (work_orders, key))
        query = _ORDER if self._session.read_only else _ORDER_LOCKED
        found = self._find(query, key)
        self._session.remember((orders, key), found)
        return found

    def _find(self, query: Query, key: OrderKey) -> OrderRecord:
        found = _ORDERS.to_records(self._session.execute(query, {"of": key}))
        if not found:
            raise _unknown_order(key)
        return found[0]

    def _load_lines(self, key: OrderKey) -> dict[LineKey, LineRecord]:
        """The order's lines in the identity map, in the order in which they were added."""
        known: dict[LineKey, LineRecord] | None = self._session.known((lines, key))
        if known is None:
            rows = self._session.execute(_LINES_OF_ORDER, {"of": key})
            known = {line.key: line for line in _LINES.to_records(rows)}
            self._session.remember((lines, key), known)
        return known

    def _load_work_orders(self, key: OrderKey) -> dict[str, WorkOrder]:
        known: dict[str, WorkOrder] | None = self._session.known((work_orders, key))
        if known is None:
            rows = self._session.execute(_WORK_ORDERS_OF_ORDER, {"of": key})
            known = {part.adapter: part for part in _WORK_ORDERS.to_records(rows)}
            self._session.remember((work_orders, key), known)
        return known

    def _fetch_keys(self, query: Query, name: str, adapter: str) -> tuple[OrderKey, ...]:
        return tuple(map(OrderKey, self._session.execute(query, {"name": name, "adapter_name": adapter}).scalars()))


def _to_columns(order: OrderRecord) -> dict[str, Any]:
    return {**_ORDERS.to_values(order), "requisition_value": order.requisition and order.requisition.value}
