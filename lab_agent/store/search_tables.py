"""Tables that lists are searched by: the numbers of orders, of which any part is found, and keyed digests of patients."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table
from sqlmodel import Field

from lab_agent.store.column_types import PlainText, RowNumber
from lab_agent.store.table_base import METADATA, TableRow
from lab_agent.store.tables import label_uses, lines, work_orders


class OrderSearchRow(TableRow, table=True):
    """All numbers by which people name an order, one on each line: key, Task ids, requisition, accessions, barcodes.

    A part is found by an index of its groups of three letters: on SQLite the table `order_search_index` (FTS5), kept by triggers;
    on PostgreSQL an index of the function `search_grams`. `number` grows with time.
    """

    __tablename__ = "order_search"
    __table_args__: Any = ({"sqlite_autoincrement": True},)

    number: int = Field(sa_type=RowNumber, primary_key=True)
    order_key: str = Field(sa_type=PlainText, foreign_key="orders.key", ondelete="CASCADE", unique=True)
    terms: str = Field(sa_type=PlainText)


class PatientDigestRow(TableRow, table=True):
    """The keyed digest of a word of a patient's name, or of a birth date, or of an identifier (`SqlPatientIndex`)."""

    __tablename__ = "patient_digests"

    digest: str = Field(sa_type=PlainText, primary_key=True)
    order_key: str = Field(sa_type=PlainText, primary_key=True, index=True)


order_search: Table = METADATA.tables["order_search"]
for _table in (lines, label_uses, work_orders):
    order_search.add_is_dependent_on(_table)  # its rows are made of theirs, so they are written first
patient_digests: Table = METADATA.tables["patient_digests"]
