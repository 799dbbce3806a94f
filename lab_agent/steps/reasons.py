"""Why a result is held: the sentences that people read, and by which of them the program knows what will bring it further."""

from __future__ import annotations

from lab_agent.domain.ids import ReportKey

_FAULT = " — no release can send it so"
_BEHIND = "waits for result "
_OVERTAKEN = "a newer version of this report came before it, without "
OLDER_WAITS = "which waits for a person"
"""Stands in the question about what an older version says, behind its key."""


def fault(reason: str) -> str:
    """The reason of what has no legal form, and what therefore no person can let go."""
    return reason + _FAULT


def is_fault(reason: str | None) -> bool:
    """Whether the reason of a held report is a fault, and not a question."""
    return (reason or "").endswith(_FAULT)


def behind(older: ReportKey) -> str:
    """The reason of a version that is only a part of the report, where an older part waits for a person."""
    return f"{_BEHIND}{older}, an older part of the same report, and is tried again when somebody has decided about that"


def overtaken(gone: str) -> str:
    """The reason of a version that a newer one came before, where that one lacks what it says."""
    mend = "let the laboratory system send the newest version whole; released, this one is left aside"
    return f"{_OVERTAKEN}{gone} — {mend}"


def is_overtaken(reason: str | None) -> bool:
    """Whether the reason of a held report is that a newer version came before it."""
    return (reason or "").startswith(_OVERTAKEN)


def is_behind(reason: str | None) -> bool:
    """Whether the reason of a held report is an older version that waits: it is tried again when that one does not any more."""
    return (reason or "").startswith(_BEHIND) or OLDER_WAITS in (reason or "")
