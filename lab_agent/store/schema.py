"""The schema of the database: upgraded by migrations, and checked with a clear error where it is another one.

Migrations are Alembic's, inside the package, and run without an ini file; a whole upgrade is one transaction on both databases.
Only an upgrade imports Alembic, which takes a while. Each migration names the oldest program that can go on working on the
database after it (`oldest_program`), so that machines can be upgraded one after the other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, event, text

from lab_agent.shared.errors import SchemaInUseError, StoreConflictError, StoreError, StoreFault, StoreUnreachableError
from lab_agent.store import schema_versions
from lab_agent.store.engine import create_file, open_engine, open_reading_engine, sqlite_file
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.missing_database import reject_lost, reject_missing
from lab_agent.store.program_records import SchemaVersions
from lab_agent.store.programs import read_programs
from lab_agent.store.restoration import CREATED_AT_KEY, INSTANCE_ID_KEY
from lab_agent.store.row_mapping import insert_new, upsert
from lab_agent.store.schema_versions import (
    SERVED_KEY,
    check_revision,
    current_revision,
    head_revision,
    oldest_program,
    reject_newer,
    write_served,
)
from lab_agent.store.tables import key_values

if TYPE_CHECKING:
    from alembic.config import Config

MADE_WITH_SCHEMA = frozenset({CREATED_AT_KEY, INSTANCE_ID_KEY, SERVED_KEY})
"""The keys of `key_values` that `upgrade` itself writes: all that a database has that was only just made."""
_MIGRATION_LOCK = 0x1AB_0001
_PATIENCE = 60.0
"""Seconds that an upgrade of SQLite waits for another one, or for a unit of work."""
_OTHERS_SECONDS, _TABLE_SECONDS, _ATTEMPTS = 3600, 5, 6
"""On PostgreSQL: how long one upgrade waits for another one; how long a statement waits for a table, as everybody else waits
behind it meanwhile; and how often that is tried."""


@dataclass(frozen=True, slots=True)
class UpgradeOutcome:
    """The schema that the database had, and the one that it has now; a newer one than this program's is left as it is."""

    before: str | None
    after: str
    program: str

    @property
    def is_newer(self) -> bool:
        """Whether a newer program has upgraded it before, and it serves this one too."""
        return self.after > self.program


def upgrade(url: str) -> UpgradeOutcome:
    """Bring the database to this program's schema, creating it where there is none. Harmless when repeated, also at once.

    Raises `SchemaMismatchError` for a database of a newer program that does not serve this one, `SchemaInUseError` while a
    program works on it that could not go on, `StoreUnreachableError`, and `StoreError` for an invalid URL.
    """
    file = sqlite_file(url)
    if file is not None:
        reject_lost(file)
        create_file(file)
    engine = open_engine(url, connections=1, patience=_PATIENCE if file is not None else float(_TABLE_SECONDS))
    if file is not None:
        event.listen(engine, "connect", _leave_references)
    try:
        return _upgrade_patiently(engine)
    finally:
        engine.dispose()


def check_schema(url: str) -> SchemaVersions:
    """Give the schema of the database beside this program's.

    Raises `SchemaMismatchError`, which says what to do, where this program cannot work on it.
    """
    file = sqlite_file(url)
    if file is not None:
        reject_missing(file)
    engine = open_reading_engine(url, connections=1)
    try:
        with translate_errors(), engine.connect() as connection:
            return check_revision(connection)
    finally:
        engine.dispose()


def _upgrade_patiently(engine: Engine) -> UpgradeOutcome:
    """Try again where a worker had a table for too long, or each waited for the other: nothing was written by then."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return _upgrade(engine)
        except StoreUnreachableError as exc:
            in_the_way = isinstance(exc, StoreConflictError) or exc.fault is StoreFault.LOCKED
            if engine.dialect.name == "sqlite" or not in_the_way:
                raise
        time.sleep(attempt)
    return _upgrade(engine)


def _upgrade(engine: Engine) -> UpgradeOutcome:
    from alembic import command  # noqa: PLC0415 - see above

    with translate_errors(), engine.begin() as connection:
        _acquire_migration_lock(connection)
        before, program = current_revision(connection), head_revision()
        reject_newer(connection, before)
        if before is not None and before > program:
            return UpgradeOutcome(before, before, program)
        config = _alembic_config()
        oldest = _find_oldest_program(config)
        if before is not None and before != program:
            _reject_programs_in_use(connection, program, oldest)
        config.attributes["connection"] = connection
        with _checked_references(connection):
            command.upgrade(config, "head")
        if before is None:
            insert_new(connection, key_values, {"key": CREATED_AT_KEY, "value": datetime.now(UTC).isoformat()})
        insert_new(connection, key_values, {"key": INSTANCE_ID_KEY, "value": uuid.uuid4().hex})
        if oldest_program(connection) != oldest:
            upsert(connection, key_values, {"key": SERVED_KEY, "value": write_served(program, oldest)}, "key")
        return UpgradeOutcome(before, program, program)


def _find_oldest_program(config: Config) -> str:
    """The oldest program that our schema serves: what one migration has taken from older ones, no later one gives back."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    scripts = ScriptDirectory.from_config(config).walk_revisions()
    return max(getattr(each.module, "oldest_program", each.revision) for each in scripts)


def _reject_programs_in_use(connection: Connection, schema: str, oldest: str) -> None:
    """Raise `SchemaInUseError` where a program works on the database that could not go on after the upgrade."""
    now = datetime.now(UTC)
    unserved = [each for each in read_programs(connection) if each.schema < oldest and each.lives(now)]
    if unserved:
        seconds = max(each.stale_after for each in unserved)
        raise SchemaInUseError(
            f"Schema {schema} does not serve programs of a schema before {oldest}, and some work on the database: "
            f"{', '.join(map(str, unserved))}. Stop them, then run `lab-agent db upgrade` again; one that was killed or cut off "
            f"counts as running for {seconds:.0f} seconds. Nothing was changed."
        )


def _acquire_migration_lock(connection: Connection) -> None:
    """Let one upgrade run at a time; SQLite does so by itself."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_OTHERS_SECONDS}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        connection.execute(text(f"SET LOCAL lock_timeout = '{_TABLE_SECONDS}s'"))


def _leave_references(connection: object, entry: object) -> None:
    """Let SQLite follow no foreign keys: a migration that makes a table anew drops the former one, whose rows others refer to."""
    del entry
    connection.execute("PRAGMA foreign_keys=OFF").close()  # type: ignore[attr-defined]  # a connection of sqlite3


@contextmanager
def _checked_references(connection: Connection) -> Iterator[None]:
    """Raise `StoreError` where, after the block, a row of SQLite refers to one that is not there."""
    yield
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken is not None:
            raise StoreError(f"The upgrade would leave rows of {broken[0]} without those of {broken[2]}; nothing was changed.")


def _alembic_config() -> Config:
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(schema_versions.MIGRATIONS_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
