"""Which orders lack what they are searched by: read along the keys of a table, so that each read costs the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, bindparam, select

from lab_agent.orders.order_repository import INDEX_ORDER
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OrderState
from lab_agent.store.search_tables import order_search, patient_digests
from lab_agent.store.session import Query, Session
from lab_agent.store.tables import orders
from lab_agent.store.vault_tables import identities


@dataclass(frozen=True, slots=True)
class SearchPortion:
    """Orders that were looked at, up to `last` (None: there was none), and those of them that lack something."""

    lacking: tuple[OrderKey, ...]
    last: OrderKey | None


def _next_rows(key: Column[Any], found_by: Column[Any], *columns: Column[Any]) -> Query:
    """The next keys of a table, and whether each is in the table of `found_by`."""
    is_found = select(found_by).where(found_by == key).correlate(key.table).exists().label("is_found")
    after = key > bindparam("after")
    return Query(select(key.label("order_key"), is_found, *columns).where(after).order_by(key).limit(bindparam("at_most")))


_ORDERS = _next_rows(orders.c.key, order_search.c.order_key, orders.c.state)
_IDENTITIES = _next_rows(identities.c.order_key, patient_digests.c.order_key)


class SearchIndex:
    """What is missing in it, read by the keys of orders, a bounded number of rows at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lacking_terms(self, *, after: OrderKey, limit: int) -> SearchPortion:
        """Look at the next orders: which of those that were fetched cannot be found by a part of their numbers."""
        rows = self._session.execute(_ORDERS, {"after": after, "at_most": limit}).all()
        return _to_portion(rows, [row for row in rows if row.state is not OrderState.SEEN])

    def lacking_digests(self, *, after: OrderKey, limit: int) -> SearchPortion:
        """Look at the next orders with identification: which of them cannot be found by their patient."""
        rows = self._session.execute(_IDENTITIES, {"after": after, "at_most": limit}).all()
        return _to_portion(rows, rows)

    def add_terms(self, orders: Collection[OrderKey]) -> None:
        """Let these orders be found by their numbers; those that are gone are left out."""
        for key in orders:
            self._session.put(INDEX_ORDER, key, {"of": key})


def _to_portion(looked_at: Sequence[Any], wanted: Sequence[Any]) -> SearchPortion:
    lacking = tuple(OrderKey(row.order_key) for row in wanted if not row.is_found)
    return SearchPortion(lacking, OrderKey(looked_at[-1].order_key) if looked_at else None)
