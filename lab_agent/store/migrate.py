"""The schema: bringing a database to it, and saying clearly when one has another.

Migrations are Alembic's, inside the package, and run without ini file. A whole upgrade is one transaction on both databases.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text

from lab_agent.errors import SchemaMismatchError
from lab_agent.store.engine import create_file, open_engine, sqlite_file
from lab_agent.store.rim import translated
from lab_agent.store.rows import insert_new
from lab_agent.store.tables import notes

INSTANCE = "instance"
"""Note that names this database from its first day on; a copy of it carries the same name."""
_ONE_AT_A_TIME = 0x1AB_0001
_UPGRADE = "run `lab-agent db upgrade`"


def upgrade(url: str) -> None:
    """Bring the database to this program's schema; it is made if it is not there. Harmless when repeated.

    Raises `SchemaMismatchError` for a database of a newer program, `StoreUnreachableError`, and `StoreError` for a wrong address.
    """
    file = sqlite_file(url)
    if file is not None:
        create_file(file)
    engine = open_engine(url, connections=1)
    try:
        with translated(), engine.begin() as connection:
            _alone(connection)
            _refuse_newer(connection)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            insert_new(connection, notes, {"key": INSTANCE, "value": uuid.uuid4().hex})
    finally:
        engine.dispose()


def check_schema(url: str) -> None:
    """Raise `SchemaMismatchError`, with one sentence that says what to do, where the database is not of this program's schema."""
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise SchemaMismatchError(f"There is no database at {file} yet; {_UPGRADE}.")
    engine = open_engine(url, connections=1)
    try:
        with translated(), engine.connect() as connection:
            _check(connection)
    finally:
        engine.dispose()


def head() -> str:
    """Give the newest schema that this program knows."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def current(connection: Connection) -> str | None:
    """Give the schema of a database; None if it has none yet."""
    return MigrationContext.configure(connection).get_current_revision()


def _check(connection: Connection) -> None:
    _refuse_newer(connection)
    have, want = current(connection), head()
    if have is None:
        raise SchemaMismatchError(f"The database is empty; {_UPGRADE}.")
    if have != want:
        raise SchemaMismatchError(f"The database has the older schema {have}, and this program needs {want}; {_UPGRADE}.")


def _refuse_newer(connection: Connection) -> None:
    have = current(connection)
    if have is None:
        return
    try:
        ScriptDirectory.from_config(_config()).get_revision(have)
    except CommandError as exc:
        raise SchemaMismatchError(
            f"The database has schema {have}, which this program (schema {head()}) does not know: install the newer program."
        ) from exc


def _alone(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ONE_AT_A_TIME})


def _config() -> Config:
    config = Config()
    here = str(Path(__file__).with_name("migrations"))
    config.set_main_option("script_location", here.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
