"""Programs that work on the database now, each with the schema that it was made for: an upgrade must not take that from them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class ProgramKind(StrEnum):
    """Which of our programs it is."""

    AGENT = "agent"
    API = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProgram:
    """One run of a program; `name` is new at each start. It lives if it was written within `stale_after` seconds."""

    name: str
    kind: ProgramKind
    host: str
    pid: int
    schema: str
    beat_at: datetime
    stale_after: float

    def lives(self, now: datetime) -> bool:
        """Whether its last sign of life is fresh. One that is far ahead of us is not: a clock was set back since."""
        return abs(now - self.beat_at) <= timedelta(seconds=self.stale_after)

    def __str__(self) -> str:
        return f"lab-{self.kind.value} on {self.host} (process {self.pid}, schema {self.schema})"

    def to_json(self) -> str:
        """Write it as it is stored."""
        return json.dumps({**asdict(self), "beat_at": self.beat_at.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> RunningProgram:
        """Read what `to_json` has written; fields that a newer program has added are left out."""
        found = json.loads(text)
        values = {name: found[name] for name in cls.__slots__}
        return cls(**{**values, "kind": ProgramKind(found["kind"]), "beat_at": datetime.fromisoformat(found["beat_at"])})


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The schema of the database, and that of this program."""

    database: str
    program: str

    @property
    def is_newer(self) -> bool:
        """Whether the database was upgraded for a newer program; it serves this one too, else this one would not have it open."""
        return self.database > self.program
