"""Which programs work on the database, and for which schema each was made."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from lab_agent.domain.programs import RunningProgram, SchemaVersions


class ProgramRepository(Protocol):
    """The runs of programs, each with its last sign of life, and the schema that they share."""

    def save(self, program: RunningProgram) -> None:
        """Write or replace what a program says of itself."""
        ...

    def remove(self, name: str) -> None:
        """Delete one that has ended in order."""
        ...

    def all(self) -> tuple[RunningProgram, ...]:
        """All of them, also those that were killed, until they are purged."""
        ...

    def purge(self, *, before: datetime) -> None:
        """Delete those whose last sign of life was before then."""
        ...

    def schema(self) -> SchemaVersions:
        """Give the schema of the database beside this program's."""
        ...
