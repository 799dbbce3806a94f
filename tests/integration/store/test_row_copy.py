"""A SQLite database on PostgreSQL: each row, each number and the chain of the audit as they were, or nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lab_agent.shared.errors import InputError, LabAgentError, StoreError, StoreUnreachableError
from lab_agent.store import row_copy
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.program_records import ProgramKind, RunningProgram
from lab_agent.store.row_copy import copy_rows
from lab_agent.store.schema import upgrade
from lab_agent.store.table_base import METADATA
from tests.harness.databases import create_database
from tests.harness.schemas import content, fill

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CIPHER = Cipher(new_key())


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A database with a row in each table."""
    url = create_database(tmp_path / "lab.db")
    fill(url)
    return url


def write(url: str, *statements: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        for each in statements:
            connection.execute(each)


def as_utc(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """SQLite's times have no zone and are in UTC; PostgreSQL's have that of the session."""

    def plain(value: Any) -> Any:
        if not isinstance(value, datetime):
            return value
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)

    found = {name: [{column: plain(value) for column, value in row.items()} for row in each] for name, each in rows.items()}
    return {name: sorted(each, key=repr) for name, each in found.items()}


def test_every_row_of_every_table_is_copied(source: str, postgres_url: str) -> None:
    write(source, "UPDATE key_values SET value = value || ' ''\"\\\t ü – 李' || char(10)")
    told: list[tuple[int, int]] = []
    copied = copy_rows(source, postgres_url, CIPHER, NOW, lambda *each: told.append(each))
    before, after = content(source), content(postgres_url)
    assert as_utc(after) == as_utc(before)
    assert {each.name: each.rows for each in copied} == {name: len(rows) for name, rows in before.items()}
    assert all(rows for rows in before.values()), "no table was left out of the test"
    assert told[-1][0] == told[-1][1]


def test_numbers_go_on_after_those_ever_given(source: str, postgres_url: str) -> None:
    """The row with the highest number was deleted; a table that never had a row begins at one.

    A target that has the schema alone counts as empty.
    """
    upgrade(postgres_url)
    write(source, "UPDATE sqlite_sequence SET seq = 4711 WHERE name = 'jobs'", "DELETE FROM events")
    write(source, "DELETE FROM sqlite_sequence WHERE name = 'events'")
    copy_rows(source, postgres_url, CIPHER, NOW)
    counted = {each.name for each in METADATA.tables.values() if each.autoincrement_column is not None}
    with psycopg.connect(postgres_url) as connection:
        for name in counted:
            column = METADATA.tables[name].autoincrement_column
            (number,) = connection.execute(f"SELECT nextval(pg_get_serial_sequence('{name}', '{column.name}'))").fetchone()  # type: ignore[misc]
            assert number == {"jobs": 4712, "events": 1}.get(name, 8), name
    assert {"jobs", "events"} <= counted


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda url: execute(url, "CREATE TABLE theirs (n int)"), "theirs"),
        (lambda url: (upgrade(url), execute(url, "INSERT INTO key_values VALUES ('a', 'b')")), "key_values"),
        (lambda url: (upgrade(url), fill(url)), "rows in"),
    ],
)
def test_target_that_is_not_empty_is_refused(source: str, postgres_url: str, prepare: Callable[[str], object], says: str) -> None:
    prepare(postgres_url)
    before = content(postgres_url)
    with pytest.raises(InputError, match=says):
        copy_rows(source, postgres_url, CIPHER, NOW)
    assert content(postgres_url) == before


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement)


def test_target_must_be_a_postgresql(source: str) -> None:
    for target in ("sqlite:///other.db", source):
        with pytest.raises(InputError):
            copy_rows(source, target, CIPHER, NOW)


def test_source_that_is_worked_on_is_refused(source: str, postgres_url: str) -> None:
    lock = AgentLock(source)
    lock.acquire(NOW)
    with pytest.raises(StoreUnreachableError):
        copy_rows(source, postgres_url, CIPHER, NOW)
    lock.release()
    seen = {"beat_at": NOW - timedelta(seconds=5), "stale_after": 60}
    program = RunningProgram(name="p", kind=ProgramKind.API, host="h", pid=1, schema="0008", **seen)
    with closing(sqlite3.connect(source.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("INSERT INTO key_values VALUES ('program.p', ?)", (program.to_json(),))
    with pytest.raises(StoreError, match="lab-api on h"):
        copy_rows(source, postgres_url, CIPHER, NOW)
    assert copy_rows(source, postgres_url, CIPHER, NOW + timedelta(minutes=5)), "one that was killed is gone by then"


def test_copy_that_differs_leaves_nothing(source: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that the target spoils on the way, in the last table of all."""
    read, last = row_copy._read, METADATA.sorted_tables[-1].name

    def spoiled(connection: Any, table: Any) -> Any:
        if table.name == last and connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"DELETE FROM {last}")
        return read(connection, table)

    monkeypatch.setattr(row_copy, "_read", spoiled)
    with pytest.raises(LabAgentError, match=f"{last} is not the same"):
        copy_rows(source, postgres_url, CIPHER, NOW)
    monkeypatch.undo()
    assert json.dumps([each.rows for each in copy_rows(source, postgres_url, CIPHER, NOW)])
