"""The schema of the database: upgraded by migrations, and checked with a clear error where it is another one.

Migrations are Alembic's, inside the package, and run without an ini file; a whole upgrade is one transaction on both databases.
Only an upgrade imports Alembic, which takes a while: the file names of the migrations say which schemas there are.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from lab_agent.errors import SchemaMismatchError
from lab_agent.ports.event_repositories import INSTANCE_ID_KEY
from lab_agent.store.engine import create_file, open_engine, open_reading_engine, sqlite_file
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.missing_database import reject_lost, reject_missing
from lab_agent.store.row_mapping import insert_new
from lab_agent.store.tables import key_values

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATION_LOCK = 0x1AB_0001
_UPGRADE_HINT = "run `lab-agent db upgrade`"
_MIGRATIONS_FOLDER = Path(__file__).with_name("migrations")


def upgrade(url: str) -> None:
    """Bring the database to this program's schema, creating it where there is none. Harmless when repeated.

    Raises `SchemaMismatchError` for a database of a newer program, `StoreUnreachableError`, and `StoreError` for an invalid URL.
    """
    from alembic import command  # noqa: PLC0415 - see above

    file = sqlite_file(url)
    if file is not None:
        reject_lost(file)
        create_file(file)
    engine = open_engine(url, connections=1)
    try:
        with translate_errors(), engine.begin() as connection:
            _acquire_migration_lock(connection)
            _reject_newer(current_revision(connection))
            config = _alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            insert_new(connection, key_values, {"key": INSTANCE_ID_KEY, "value": uuid.uuid4().hex})
    finally:
        engine.dispose()


def check_schema(url: str) -> None:
    """Raise `SchemaMismatchError`, which says what to do, where the database does not have this program's schema."""
    file = sqlite_file(url)
    if file is not None:
        reject_missing(file)
    engine = open_reading_engine(url, connections=1)
    try:
        with translate_errors(), engine.connect() as connection:
            check_revision(connection)
    finally:
        engine.dispose()


def head_revision() -> str:
    """Give the newest schema that this program knows."""
    return max(_known_revisions())


def current_revision(connection: Connection) -> str | None:
    """Give the schema of a database; None if it has none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def check_revision(connection: Connection) -> None:
    """Raise `SchemaMismatchError` where the database has another schema than this program."""
    have, want = current_revision(connection), head_revision()
    _reject_newer(have)
    if have is None:
        raise SchemaMismatchError(f"The database is empty; {_UPGRADE_HINT}.")
    if have != want:
        raise SchemaMismatchError(f"The database has the older schema {have}, and this program needs {want}; {_UPGRADE_HINT}.")


def check_restorable(connection: Connection) -> None:
    """Raise `SchemaMismatchError` where this program cannot go on with a copy: of a newer program, or of no database of ours."""
    reject_unknown_revision(current_revision(connection))


def reject_unknown_revision(revision: str | None) -> None:
    """Raise `SchemaMismatchError` for the schema of a newer program, or none at all (None)."""
    if revision is None:
        raise SchemaMismatchError("It is no database of lab-agent: it has no schema.")
    _reject_newer(revision)


def _reject_newer(have: str | None) -> None:
    if have is not None and have not in _known_revisions():
        raise SchemaMismatchError(
            f"The database has schema {have}, which this program (schema {head_revision()}) does not know: "
            "install the newer program."
        )


def _known_revisions() -> set[str]:
    """The schemas that this program knows: the file name of each migration begins with its own."""
    return {file.name.partition("_")[0] for file in (_MIGRATIONS_FOLDER / "versions").glob("[0-9]*.py")}


def _acquire_migration_lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})


def _alembic_config() -> Config:
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
