"""SQLite databases with our schema, copied from one: its migrations take longer than most tests; and a laboratory's own."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import Engine, create_engine, text

from lab_agent.lis.sql.staging_tables import StagingTables, create_statements, make_tables
from lab_agent.ports.event_repositories import INSTANCE_ID_KEY
from lab_agent.store.engine import create_file
from lab_agent.store.schema import upgrade


def create_database(path: Path) -> str:
    """Make a database as `upgrade` makes it, with an instance of its own and nothing else; its address."""
    create_file(path)
    path.write_bytes(_upgraded())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE key_values SET value = ? WHERE key = ?", (uuid.uuid4().hex, INSTANCE_ID_KEY))
    return f"sqlite:///{path}"


@cache
def _upgraded() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.db"
        upgrade(f"sqlite:///{path}")
        assert [file.name for file in path.parent.iterdir()] == [path.name], "all of it is in one file"
        return path.read_bytes()


def create_staging_tables(url: str, schema: str | None = None) -> tuple[Engine, StagingTables]:
    """Make the tables of a laboratory system by the statements that `ddl` prints."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in filter(str.strip, create_statements(engine.dialect.name, "lab_", schema).split(";")):
            connection.execute(text(statement))
    return engine, make_tables("lab_", schema)
