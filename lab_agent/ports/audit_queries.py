"""What pages read of the audit: records newest first, each compared with the one before it in the chain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lab_agent.domain.audit import AuditAction, AuditRecord

MAX_LOOKED_AT = 20_000
"""How many records a page looks at for those that it wants, where no index finds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCriteria:
    """What a list of records is narrowed to; everything that is given must be so, and be the whole name or key.

    `since` and `until` are times of the records, the second one excluded.
    """

    actor: str = ""
    action: AuditAction | None = None
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditList:
    """A page of records, newest first."""

    records: tuple[AuditRecord, ...]
    older_before: int | None = None
    """Older ones have numbers below this one; None where there are none."""
    is_cut: bool = False
    """Whether `MAX_LOOKED_AT` records were looked at, and older ones that may be wanted were not."""
    broken: frozenset[int] = frozenset()
    """Numbers of records that do not fit the one before them: one of the two was altered, or the one before is missing."""
    is_end_whole: bool = True
    """Whether the audit ends where its sealed head says; without a head that can be read, nothing is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecord:
    """A record, and whether it fits the one before it."""

    record: AuditRecord
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditNote:
    """What a person wrote about a record: no `text` where it was erased, or (then not `is_whole`) cannot be decrypted."""

    text: str | None
    is_whole: bool


class AuditQueries(Protocol):
    """Reads of the audit. Each call may raise `StoreUnreachableError` and `SchemaMismatchError`."""

    async def audit_list(self, criteria: AuditCriteria, *, before: int | None = None, limit: int = 50) -> AuditList:
        """Records, newest first: those with numbers below `before` alone. A page costs the same however many there are."""
        ...

    async def audit_record(self, number: int) -> CheckedRecord | None:
        """One record; None if there is none of that number (any more)."""
        ...

    async def audit_note(self, number: int) -> AuditNote | None:
        """The note of a record; None where it has none. It may name a patient: record the look first."""
        ...
