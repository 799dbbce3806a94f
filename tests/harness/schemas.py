"""Schemas of versions to come, and what a database of any schema is and holds.

`next_schemas` adds two migrations to those of the package: one that the present program can go on with, and one that it cannot.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Column, Connection, Engine, MetaData, Table, inspect, text, types

from lab_agent.store import schema_versions
from lab_agent.store.engine import create_file, open_engine, sqlite_file
from lab_agent.store.schema import _alembic_config

ADDITIVE, REBUILT = "9001", "9002"
_ADDITIVE = '''"""Adds what the present program does not know, and can go on without."""

import sqlalchemy as sa
from alembic import op

revision = "9001"
oldest_program = "{head}"
down_revision = "{head}"


def upgrade() -> None:
    op.create_table("next_things", sa.Column("key", sa.Text(), primary_key=True), sa.Column("value", sa.Text()))
    op.add_column("orders", sa.Column("next_note", sa.Text(), nullable=True))
    op.add_column("lines", sa.Column("next_rank", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_orders_next_note", "orders", ["next_note"])
    op.execute("UPDATE orders SET next_note = 'of ' || key")
    op.execute("INSERT INTO next_things (key, value) SELECT key, next_note FROM orders")
'''
_REBUILT = '''"""Takes a column away and makes a table anew that others refer to: the former program cannot go on."""

import sqlalchemy as sa
from alembic import op

revision = "9002"
oldest_program = "9002"
down_revision = "9001"


def upgrade() -> None:
    op.drop_index("ix_orders_next_note", "orders")
    with op.batch_alter_table("orders") as orders:  # made anew by SQLite
        orders.drop_column("next_note")
        orders.add_column(sa.Column("next_name", sa.Text(), nullable=False, server_default=""))
    named = "SELECT value FROM next_things WHERE next_things.key = orders.key"
    op.execute(f"UPDATE orders SET next_name = coalesce(({named}), '')")
    op.drop_table("next_things")
'''
TEXT_INDEX = "order_search_index"
"""What the names of SQLite's own tables of a text index begin with; triggers fill them."""
_MOMENT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@contextmanager
def next_schemas(folder: Path, *, upto: str = ADDITIVE) -> Iterator[None]:
    """Inside the block, this process is the program of the schema `upto`."""
    head, copy = schema_versions.head_revision(), folder / f"migrations-{upto}"
    shutil.copytree(schema_versions.MIGRATIONS_FOLDER, copy)
    (copy / "versions" / "9001_additive.py").write_text(_ADDITIVE.format(head=head))
    if upto == REBUILT:
        (copy / "versions" / "9002_rebuilt.py").write_text(_REBUILT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_versions, "MIGRATIONS_FOLDER", copy)
        yield


@contextmanager
def closing_engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url, connections=1)
    try:
        yield engine
    finally:
        engine.dispose()


def upgrade_to(url: str, revision: str) -> None:
    """Make the database one of that schema, as the program of that schema has left it."""
    if file := sqlite_file(url):
        create_file(file)
    with closing_engine(url) as engine, engine.begin() as connection:
        config = _alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def describe(url: str) -> Mapping[str, Any]:
    """The whole schema: tables, columns, keys, references and indexes, with SQLite's own words for them."""
    with closing_engine(url) as engine, engine.connect() as connection:
        looked = inspect(connection)
        tables = {name: _describe_table(looked, name) for name in looked.get_table_names()}
        return {"tables": tables, "words": _words(connection)}


def _describe_table(looked: Any, name: str) -> Any:
    columns = {each["name"]: (str(each["type"]), each["nullable"], each["default"]) for each in looked.get_columns(name)}
    keys = looked.get_pk_constraint(name)["constrained_columns"]
    references = sorted((str(each["constrained_columns"]), each["referred_table"]) for each in looked.get_foreign_keys(name))
    indexes = sorted((each["name"], str(each["column_names"]), each["unique"]) for each in looked.get_indexes(name))
    return columns, keys, references, indexes


def _words(connection: Connection) -> Sequence[str]:
    listed = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
    if connection.dialect.name == "sqlite":
        listed = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
    return connection.scalars(text(listed)).all()


def fill(url: str) -> None:
    """Write a row into every table, as many as there are, with a value in every column."""
    with closing_engine(url) as engine, engine.begin() as connection:
        for table in _reflect(connection):
            row = {column.name: _value(column) for column in table.columns}
            connection.execute(table.insert().values(row))


def content(url: str) -> Mapping[str, list[Mapping[str, Any]]]:
    with closing_engine(url) as engine, engine.connect() as connection:
        tables = _reflect(connection)
        return {table.name: [dict(row) for row in connection.execute(table.select()).mappings()] for table in tables}


def _reflect(connection: Connection) -> list[Table]:
    found = MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != "alembic_version" and not table.name.startswith(TEXT_INDEX)]


def _value(column: Column[Any]) -> Any:
    for reference in column.foreign_keys:
        return _value(reference.column)
    if isinstance(column.type, types.Boolean):
        return True
    if isinstance(column.type, types.Integer):
        return 7
    if isinstance(column.type, types.Float):
        return 7.5
    if isinstance(column.type, types.DateTime):
        return _MOMENT if getattr(column.type, "timezone", False) else _MOMENT.replace(tzinfo=None)
    if isinstance(column.type, types.LargeBinary):
        return b"\x00bytes"
    return f"{column.table.name}.{column.name}"


def kept(before: Mapping[str, list[Mapping[str, Any]]], after: Mapping[str, list[Mapping[str, Any]]]) -> None:
    """Fail where a row is lost, or a value of a column that is still there has changed."""
    for name, rows in before.items():
        if name in after and name != "key_values":
            shared = set(rows[0]) & set(after[name][0]) if rows and after[name] else set()
            assert [{column: row[column] for column in shared} for row in after[name]] == [
                {column: row[column] for column in shared} for row in rows
            ], name
            assert len(rows) == len(after[name]), name
    values = {row["key"]: row["value"] for row in after["key_values"]}
    assert all(values[row["key"]] == row["value"] for row in before["key_values"])
