"""Why a result is held: the sentences that people read, and by which of them the program knows what will bring it further."""

from __future__ import annotations

from lab_agent.domain.ids import ReportKey

_DEFECT_SUFFIX = " — no release can send it so"
_WAITS_FOR_OLDER_PREFIX = "waits for result "
_SUPERSEDED_BY_NEWER_PREFIX = "a newer version of this report came before it, without "
OLDER_NEEDS_OPERATOR = "which waits for a person"
"""Stands in the question about what an older version says, behind its key."""


def defect_reason(reason: str) -> str:
    """The reason of what has no legal form, and what therefore no person can let go."""
    return reason + _DEFECT_SUFFIX


def is_defect(reason: str | None) -> bool:
    """Whether the reason of a held report is a fault, and not a question."""
    return (reason or "").endswith(_DEFECT_SUFFIX)


def waits_for_older_reason(older: ReportKey) -> str:
    """The reason of a version that is only a part of the report, where an older part waits for a person."""
    return f"{_WAITS_FOR_OLDER_PREFIX}{older}, an older part of the same report, and is tried again when somebody has decided about that"


def superseded_by_newer_reason(lost: str) -> str:
    """The reason of a version that a newer one came before, where that one lacks what it says."""
    mend = "let the laboratory system send the newest version whole; released, this one is left aside"
    return f"{_SUPERSEDED_BY_NEWER_PREFIX}{lost} — {mend}"


def is_superseded_by_newer(reason: str | None) -> bool:
    """Whether the reason of a held report is that a newer version came before it."""
    return (reason or "").startswith(_SUPERSEDED_BY_NEWER_PREFIX)


def is_waiting_for_older(reason: str | None) -> bool:
    """Whether the reason of a held report is an older version that waits: it is tried again when that one does not any more."""
    return (reason or "").startswith(_WAITS_FOR_OLDER_PREFIX) or OLDER_NEEDS_OPERATOR in (reason or "")
