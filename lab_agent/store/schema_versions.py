"""Which schema a database has, and whether this program may work on it: on its own, and on a newer one that says so.

The file names of the migrations say which schemas this program knows. A newer schema names the oldest program that can go on
working on it; that is written by the upgrade, beside the schema itself.
"""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import Connection, inspect, select, text

from lab_agent.shared.errors import EmptyDatabaseError, SchemaMismatchError
from lab_agent.store.program_records import SchemaVersions
from lab_agent.store.tables import key_values

MIGRATIONS_FOLDER = Path(__file__).with_name("migrations")
SERVED_KEY = "schema.oldest_program"
"""Under this key it is stored which is the oldest schema whose program can work on the database."""
_UPGRADE_HINT = "run `lab-agent db upgrade`"
_SERVED = select(key_values.c.value).where(key_values.c.key == SERVED_KEY)


def known_revisions() -> set[str]:
    """Give the schemas that this program knows: the file name of each migration begins with its own."""
    return {file.name.partition("_")[0] for file in (MIGRATIONS_FOLDER / "versions").glob("[0-9]*.py")}


def head_revision() -> str:
    """Give the newest schema that this program knows: its own."""
    return max(known_revisions())


def current_revision(connection: Connection) -> str | None:
    """Give the schema of a database; None if it has none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def oldest_program(connection: Connection) -> str | None:
    """Give the oldest schema whose program can work on the database as it is; None where only its own program can."""
    stored = connection.scalar(_SERVED) if inspect(connection).has_table(key_values.name) else None
    return parse_served(stored, current_revision(connection))


def write_served(schema: str, oldest: str) -> str:
    """Write as it is stored that `oldest` is the oldest program that `schema` serves."""
    return json.dumps({"schema": schema, "oldest_program": oldest})


def parse_served(stored: str | None, schema: str | None) -> str | None:
    """Give the oldest program that `schema` serves; None where what is stored is about another one."""
    served = json.loads(stored) if stored else {}
    return served.get("oldest_program") if served.get("schema") == schema else None


def check_revision(connection: Connection) -> SchemaVersions:
    """Give the schema of the database and ours. Raises `SchemaMismatchError` where this program cannot work on it."""
    have, want = current_revision(connection), head_revision()
    if have is None:
        raise EmptyDatabaseError(f"The database is empty; {_UPGRADE_HINT}.")
    if have in known_revisions() and have != want:
        raise SchemaMismatchError(f"The database has the older schema {have}, and this program needs {want}; {_UPGRADE_HINT}.")
    reject_newer(connection, have)
    return SchemaVersions(have, want)


def reject_newer(connection: Connection, have: str | None) -> None:
    """Raise `SchemaMismatchError` where the schema `have` of a database is newer, and does not serve this program."""
    if have is not None and have not in known_revisions():
        reject_unserved(have, oldest_program(connection))


def reject_unserved(have: str, oldest: str | None) -> None:
    """Raise `SchemaMismatchError` where a newer schema, whose `oldest` program is given, does not serve this program."""
    if oldest is None or oldest > head_revision():
        raise SchemaMismatchError(
            f"The database has schema {have}, which this program (schema {head_revision()}) does not know: "
            "install the newer program."
        )


def reject_foreign(revision: str | None, served: str | None) -> None:
    """Raise `SchemaMismatchError` where this program cannot go on with a copy: of a newer program, or of no database of ours.

    `served` is what the copy has stored under `SERVED_KEY`.
    """
    if revision is None:
        raise SchemaMismatchError("It is no database of lab-agent: it has no schema.")
    if revision not in known_revisions():
        reject_unserved(revision, parse_served(served, revision))


def check_restorable(connection: Connection) -> None:
    """Raise `SchemaMismatchError` where this program cannot go on with a copy that is open."""
    revision = current_revision(connection)
    reject_foreign(revision, None if revision is None else connection.scalar(_SERVED))
