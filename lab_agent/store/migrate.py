"""The schema: bringing a database to it, and saying clearly when one has another.

Migrations are Alembic's, inside the package, and run without ini file. A whole upgrade is one transaction on both databases.
Only an upgrade needs Alembic, which takes a while to import: the names of the migrations say which schemas there are.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from lab_agent.errors import SchemaMismatchError
from lab_agent.store.engine import create_file, open_engine, sqlite_file
from lab_agent.store.rim import translated
from lab_agent.store.rows import insert_new
from lab_agent.store.tables import notes

if TYPE_CHECKING:
    from alembic.config import Config

INSTANCE = "instance"
"""Note that names this database from its first day on; a copy of it carries the same name."""
_ONE_AT_A_TIME = 0x1AB_0001
_UPGRADE = "run `lab-agent db upgrade`"
_MIGRATIONS = Path(__file__).with_name("migrations")


def upgrade(url: str) -> None:
    """Bring the database to this program's schema; it is made if it is not there. Harmless when repeated.

    Raises `SchemaMismatchError` for a database of a newer program, `StoreUnreachableError`, and `StoreError` for a wrong address.
    """
    from alembic import command  # noqa: PLC0415 - see above

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
    return max(_known())


def current(connection: Connection) -> str | None:
    """Give the schema of a database; None if it has none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _check(connection: Connection) -> None:
    _refuse_newer(connection)
    have, want = current(connection), head()
    if have is None:
        raise SchemaMismatchError(f"The database is empty; {_UPGRADE}.")
    if have != want:
        raise SchemaMismatchError(f"The database has the older schema {have}, and this program needs {want}; {_UPGRADE}.")


def _refuse_newer(connection: Connection) -> None:
    have = current(connection)
    if have is not None and have not in _known():
        raise SchemaMismatchError(
            f"The database has schema {have}, which this program (schema {head()}) does not know: install the newer program."
        )


def _known() -> set[str]:
    """The schemas that this program knows: each migration's file begins with the name of its own."""
    return {file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py")}


def _alone(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ONE_AT_A_TIME})


def _config() -> Config:
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
