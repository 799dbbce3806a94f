"""Whether a report that found its order may go: is it expected, can it be said, is it meant, are its documents what they say.

What is cleared here can be delivered. A person may waive the questions (a late report, one that is hardly meant, an odd document
under the type that its bytes show), and never what has no legal form on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.coverage import Coverage
from lab_agent.domain.journal import LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState, OrderState, ReportState
from lab_agent.domain.plausible import oddities
from lab_agent.domain.quoting import several
from lab_agent.domain.results import LabReport
from lab_agent.errors import DataInvalidError
from lab_agent.ports.documents import Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.left_out import completed, final_left_out
from lab_agent.steps.odd_documents import OddDocument, told_truly
from lab_agent.steps.planning import Planning

_GONE = frozenset({LineState.REFUSED, LineState.WITHDRAWN, LineState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Found:
    """A report with the order and the lines that it is about; `sent` are its versions that went, or are on their way."""

    report: ReportRecord
    message: LabReport
    order: OrderRecord
    lines: tuple[LineRecord, ...]
    coverage: Coverage
    sent: tuple[ReportRecord, ...]


class Waits(LookupError):
    """The report waits for a person, as `state` says."""

    def __init__(self, state: ReportState, reason: str) -> None:
        super().__init__(reason)
        self.state = state


@dataclass(frozen=True, slots=True)
class Clearing:
    """Clears one report within a unit of work; nothing is written."""

    planning: Planning
    documents: Documents

    def clear(self, uow: UnitOfWork, found: Found, now: datetime, *, waive: bool) -> tuple[LabReport, tuple[str, ...]]:
        """Give the report as it may go, and what a person's release changed in it. Raises `Waits`."""
        if self.planning.settings.left_out == "keep":
            found = replace(found, message=completed(found.sent, found.message))
        if not waive and not found.sent and (late := _too_late(found)):
            raise Waits(ReportState.HELD, late)
        if unmapped := self.planning.unmapped(found.message):
            raise Waits(ReportState.UNMAPPED, unmapped)
        if not waive and (question := _questions(found.message, found.sent, now)):
            raise Waits(ReportState.HELD, question)
        try:
            message, changed = told_truly(uow, self.documents, found.message, waive=waive)
            # Planned for nobody: so delivery meets no surprise half-way.
            self.planning.plan(message, found.order, found.lines, found.coverage, reader="anybody", urls={})
        except OddDocument as odd:
            raise Waits(ReportState.HELD, str(odd)) from odd
        except DataInvalidError as exc:
            raise Waits(ReportState.HELD, several(map(str, exc.problems), "; ")) from exc
        return message, changed


def _too_late(found: Found) -> str | None:
    """Why a report that is heard of for the first time is no longer expected; None where it is."""
    if found.order.state in {OrderState.WITHDRAWN, OrderState.REFUSED}:
        return f"the order is {found.order.state.value}, and this is the first that is heard of this report"
    ended = {line.key: line.state for line in found.lines}
    said = found.message.observations or found.message.documents
    if said and all(ended[key] in _GONE for key in found.coverage.lines):
        return "every line that it is about has ended as cancelled, and this is the first that is heard of this report"
    return None


def _questions(message: LabReport, sent: Sequence[ReportRecord], now: datetime) -> str | None:
    """What a person should say before the report goes out; None where nothing is odd."""
    problems = [*oddities(message, now)]
    if gone := final_left_out(sent, message):
        problems.append(gone)
    return several(map(str, problems), "; ") or None
