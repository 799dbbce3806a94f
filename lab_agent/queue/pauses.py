"""A laboratory system that a person has paused: it is told nothing until somebody resumes it; what it sends is taken in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Self

PAUSE_KEY_PREFIX = "lis.paused/"
"""Beginning of the keys under which the store keeps pauses, by the names of laboratory systems. An empty value is none."""


def pause_key(system: str) -> str:
    """Key of the pause of a laboratory system."""
    return PAUSE_KEY_PREFIX + system


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPause:
    """The pause of a laboratory system (its name in the settings). Why is in the audit alone: people write anything there."""

    system: str
    since: datetime
    by: str

    def to_json(self) -> str:
        """Give it as the store keeps it."""
        return json.dumps({"since": self.since.isoformat(), "by": self.by}, ensure_ascii=False)

    @classmethod
    def from_json(cls, system: str, stored: str) -> Self:
        """Read it as `to_json` writes it."""
        values = json.loads(stored)
        return cls(system=system, since=datetime.fromisoformat(values["since"]), by=values["by"])
