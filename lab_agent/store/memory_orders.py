"""Orders, their lines and their labels, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import LabelUse, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import OrderState
from lab_agent.errors import AlreadyExistsError, StoreError
from lab_agent.store.memory_shelf import MemoryData
from lab_agent.store.states import AT_LABORATORY, LABEL_RELEASING, UNASSESSED_ORDERS, WITHDRAWN_LINES


class MemoryOrderRepository:
    """Orders, their lines and their labels."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        """Which of these order-level Tasks are in the journal."""
        return frozenset(task_ids) & {order.task_id for order in self._data.orders.values()}

    def add(self, order: OrderRecord) -> None:
        """Write a new order. Raises `AlreadyKnownError`."""
        if order.key in self._data.orders or self.existing((order.task_id,)):
            raise AlreadyExistsError("The order is in the journal already; nothing was written.")
        self._data.orders[order.key] = order

    def get_for_update(self, key: OrderKey) -> OrderRecord:
        """Read an order. Raises `StoreError` if unknown."""
        if key not in self._data.orders:
            raise StoreError(f"No order {key} is in the journal.")
        return self._data.orders[key]

    def save(self, order: OrderRecord) -> None:
        """Write a changed order. Raises `StoreError` if unknown."""
        self.get_for_update(order.key)
        self._data.orders[order.key] = order

    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        """The order's lines, in the order in which they were added."""
        return tuple(line for line in self._data.lines.values() if line.order == key)

    def add_line(self, line: LineRecord) -> None:
        """Write a new line. Raises `AlreadyKnownError`, and `StoreError` if its order is unknown."""
        if line.key in self._data.lines:
            raise AlreadyExistsError("The line is in the journal already; nothing was written.")
        self.get_for_update(line.order)
        self._data.lines[line.key] = line

    def save_line(self, line: LineRecord) -> None:
        """Write a changed line. Raises `StoreError` if unknown."""
        if line.key not in self._data.lines:
            raise StoreError(f"No line {line.key} is in the journal.")
        self._data.lines[line.key] = line

    def line(self, key: LineKey) -> LineRecord | None:
        """One line."""
        return self._data.lines.get(key)

    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        """Replace the labels of an order. Raises `StoreError` if it is unknown."""
        if labels:
            self.get_for_update(key)
        others = [label for label in self._data.label_uses if label.order != key]
        self._data.label_uses = [*others, *dict.fromkeys(labels)]

    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        """Uses of these barcodes by lines of other orders that are not refused or withdrawn."""
        used = (label for label in self._data.label_uses if label.barcode in barcodes and label.order != except_order)
        lines = self._data.lines
        held = (label for label in used if label.line in lines and lines[label.line].state not in LABEL_RELEASING)
        return tuple(sorted(held, key=lambda label: label.barcode))

    def by_accession(self, accession: str) -> tuple[OrderKey, ...]:
        """Orders that carry this accession, themselves or on a line; newest first."""
        on_lines = {line.order for line in self._data.lines.values() if line.accession == accession}
        return self._newest_first(on_lines | {order.key for order in self._data.orders.values() if order.accession == accession})

    def by_barcode(self, barcode: str) -> tuple[OrderKey, ...]:
        """Orders whose accepted lines use this label, newest first; where there is none, those whose withdrawn lines used it."""
        lines = self._data.lines
        used = [label for label in self._data.label_uses if label.barcode == barcode and label.line in lines]
        taken, gone = (
            {label.order for label in used if lines[label.line].state in states} for states in (AT_LABORATORY, WITHDRAWN_LINES)
        )
        return self._newest_first(taken or gone)

    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        """Orders that are not closed, by key."""
        keys = sorted(key for key, order in self._data.orders.items() if order.state is not OrderState.CLOSED)
        return tuple(self._data.orders[key] for key in keys if after is None or key > after)[:limit]

    def unassessed_since(self) -> datetime | None:
        """When the oldest order was seen that is still to be judged."""
        return min((order.seen_at for order in self._data.orders.values() if order.state in UNASSESSED_ORDERS), default=None)

    def _newest_first(self, keys: Iterable[OrderKey]) -> tuple[OrderKey, ...]:
        return tuple(sorted(sorted(keys), key=lambda key: self._data.orders[key].seen_at, reverse=True))
