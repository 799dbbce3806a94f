"""What all tables share: one `MetaData` with names for keys and indexes that are the same in every database."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Index, MetaData, text
from sqlmodel import SQLModel

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def partial_index(name: str, condition: str, *columns: str, unique: bool = False) -> Index:
    """An index of the rows that meet `condition`: claims and lists stay fast however many finished rows lie beside them."""
    return Index(name, *columns, unique=unique, sqlite_where=text(condition), postgresql_where=text(condition))


class TableRow(SQLModel):
    """What all tables share: one `MetaData` of our own."""

    metadata: ClassVar[MetaData] = METADATA
