"""Programs that work on the database: one value for each run, under a key of its own, in `key_values`."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, select, text

from lab_agent.store.program_records import RunningProgram, SchemaVersions
from lab_agent.store.row_mapping import upsert_by
from lab_agent.store.schema_versions import head_revision
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.tables import key_values

PROGRAM_PREFIX = "program."
_IS_PROGRAM = key_values.c.key.startswith(PROGRAM_PREFIX, autoescape=True)
_SELECT_ALL = select(key_values.c.value).where(_IS_PROGRAM).order_by(key_values.c.key)
_ALL = Query(_SELECT_ALL)
_SAVE = Write.insert(key_values, upsert_by("key"))
_REMOVE = Write.of(key_values, delete(key_values).where(key_values.c.key == bindparam("of")))
_SCHEMA = Query(text("SELECT version_num FROM alembic_version"))


class ProgramRepository:
    """The runs of programs, each with its last sign of life, and the schema that they share."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def save(self, program: RunningProgram) -> None:
        """Write or replace what a program says of itself."""
        key = PROGRAM_PREFIX + program.name
        self._session.put(_SAVE, key, {"key": key, "value": program.to_json()})

    def remove(self, name: str) -> None:
        """Delete one that has ended in order."""
        self._session.append(_REMOVE, [{"of": PROGRAM_PREFIX + name}])

    def all(self) -> tuple[RunningProgram, ...]:
        """All of them, also those that were killed, until they are purged."""
        return tuple(RunningProgram.from_json(value) for (value,) in self._session.execute(_ALL))

    def purge(self, *, before: datetime) -> None:
        """Delete those whose last sign of life was before then."""
        for each in self.all():
            if each.beat_at < before:
                self.remove(each.name)

    def schema(self) -> SchemaVersions:
        """Give the schema of the database beside this program's."""
        program = head_revision()
        return SchemaVersions(self._session.execute(_SCHEMA).scalar() or program, program)


def read_programs(connection: Connection) -> tuple[RunningProgram, ...]:
    """Give all of them, for who has no unit of work."""
    return tuple(RunningProgram.from_json(value) for value in connection.scalars(_SELECT_ALL))
