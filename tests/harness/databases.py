"""SQLite databases with our schema, copied from one: its migrations take longer than most tests."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path

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
