"""That the database was restored from a backup: what it holds is older than what was done, and nobody may act on it unasked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

INSTANCE_ID_KEY = "instance"
"""Key of the id that a database has from its creation on; a copy of it has the same one."""
CREATED_AT_KEY = "created_at"
"""Key of the time when a database was made, in ISO 8601; one that an older program made has none."""


class RestoreSign(StrEnum):
    """What shows that a database was restored."""

    COMMAND = "command"  # `lab-agent restore` did it
    OLDER_THAN_MARK = "older_than_mark"  # the mark outside the database is ahead of it
    OTHER_DATABASE = "other_database"  # the mark outside is another database's
    OWN_REPORTS = "own_reports"  # the service has reports or ended Tasks of ours that the database does not know


SIGN_WORDS = {
    RestoreSign.COMMAND: "it was restored with `lab-agent restore`",
    RestoreSign.OLDER_THAN_MARK: "it is older than the mark beside it says: a backup was put in its place",
    RestoreSign.OTHER_DATABASE: "the mark beside it is of another database: a new one was put in the place of one that was lost",
    RestoreSign.OWN_REPORTS: (
        "the service has reports of ours, or Tasks that we ended, that it does not know: another agent works with a database of "
        "its own, or this one was put back with its mark"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """One restore. `known_until` is the newest thing that the database knew when it was noticed.

    `reconciled_at`: the open orders were compared with the service since, but for `not_compared` ones that alone could not be.
    Laboratory systems are told nothing until an operator has released it.
    """

    sign: RestoreSign
    noticed_at: datetime
    known_until: datetime | None = None
    reconciled_at: datetime | None = None
    not_compared: int = 0
    released_at: datetime | None = None
    released_by: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether an operator still has to release it."""
        return self.released_at is None

    def reconciled(self, now: datetime, not_compared: int) -> Restoration:
        """The open orders were compared with the service, but for so many."""
        return replace(self, reconciled_at=self.reconciled_at or now, not_compared=not_compared)

    def released(self, now: datetime, by: str) -> Restoration:
        """An operator lets work go on."""
        return replace(self, released_at=now, released_by=by)

    def concerns(self, decided_at: datetime) -> bool:
        """Whether what was decided then may have been done already, or anew, by the time that the backup does not know."""
        return self.released_at is None or decided_at <= self.released_at

    def to_json(self) -> str:
        """Write it as it is stored."""
        return json.dumps({key: each.isoformat() if isinstance(each, datetime) else each for key, each in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str) -> Restoration:
        """Read what `to_json` has written, also that of an older program, which had `tells_withdrawals`."""
        values: dict[str, Any] = json.loads(text)
        values.pop("tells_withdrawals", None)
        for key in ("noticed_at", "known_until", "reconciled_at", "released_at"):
            values[key] = datetime.fromisoformat(values[key]) if values[key] else None
        values["sign"] = RestoreSign(values["sign"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class MarkedNumber:
    """The number that the database with the id `instance` had reached: it grows while the agent runs."""

    instance: str
    number: int


def find_sign(mark: MarkedNumber | None, stored: MarkedNumber) -> RestoreSign | None:
    """What a mark outside the database says about it."""
    if mark is None:
        return None
    if mark.instance != stored.instance:
        return RestoreSign.OTHER_DATABASE
    return RestoreSign.OLDER_THAN_MARK if mark.number > stored.number else None
