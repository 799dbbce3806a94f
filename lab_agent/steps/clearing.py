"""Whether a report that found its order may go: is it expected, can it be said, is it meant, are its documents what they say.

What is cleared here can be delivered. A person may waive the questions (a late report, one that is hardly meant, an odd document
under the type that its bytes show), and never what has no legal form on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.coverage import Coverage
from lab_agent.domain.journal import LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState, OrderState, ReportState
from lab_agent.domain.plausible import oddities
from lab_agent.domain.quoting import several
from lab_agent.domain.results import LabReport
from lab_agent.errors import DataInvalidError, Problem
from lab_agent.ports.documents import Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.endings import has_result, with_result
from lab_agent.steps.left_out import Settled, completed
from lab_agent.steps.odd_documents import OddDocument, Shelf, told_truly
from lab_agent.steps.planning import Planning

_GONE = frozenset({LineState.REFUSED, LineState.WITHDRAWN, LineState.CANCELLED})


_FAULT = " — no release can send it so"


def fault(reason: str) -> str:
    """The reason of what has no legal form, and what therefore no person can let go."""
    return reason + _FAULT


def is_fault(reason: str | None) -> bool:
    """Whether the reason of a held report is a fault, and not a question."""
    return (reason or "").endswith(_FAULT)


@dataclass(frozen=True, slots=True)
class Found:
    """A report with the order and the lines that it is about; `sent` are its versions that went, or are on their way."""

    report: ReportRecord
    message: LabReport
    order: OrderRecord
    lines: tuple[LineRecord, ...]
    coverage: Coverage
    sent: tuple[ReportRecord, ...]

    @property
    def went(self) -> bool:
        """Whether the clinic has an earlier version."""
        return any(each.state is ReportState.DELIVERED for each in self.sent)


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
        if not waive and not found.went and (late := _too_late(found)):
            raise Waits(ReportState.HELD, late)
        if unmapped := self.planning.unmapped(found.message):
            raise Waits(ReportState.UNMAPPED, unmapped)
        if not waive and (question := _questions(uow, found, now)):
            raise Waits(ReportState.HELD, question)
        try:
            message, changed = self._documents_told_truly(uow, found, waive=waive)
            # Planned for nobody: so delivery meets no surprise half-way.
            self.planning.plan(message, found.order, found.lines, found.coverage, reader="anybody", urls={})
        except DataInvalidError as exc:
            raise Waits(ReportState.HELD, fault(several(map(str, exc.problems), "; "))) from exc
        return message, changed

    def _documents_told_truly(self, uow: UnitOfWork, found: Found, *, waive: bool) -> tuple[LabReport, tuple[str, ...]]:
        """As `told_truly`; where a document is odd, one that nobody can let go is told first. Raises `Waits`."""
        shelf = self._shelf(uow, found)
        try:
            return told_truly(shelf, self.documents, found.message, waive=waive)
        except OddDocument as odd:
            question = str(odd)
        try:
            told_truly(shelf, self.documents, found.message, waive=True)
        except OddDocument as odd:
            raise Waits(ReportState.HELD, fault(str(odd))) from odd
        raise Waits(ReportState.HELD, question)

    def _shelf(self, uow: UnitOfWork, found: Found) -> Shelf:
        return Shelf(uow, found.order.key, self.planning.settings.documents)


def _too_late(found: Found) -> str | None:
    """Why a report that is heard of for the first time is no longer expected; None where it is."""
    first = "and this is the first that is heard of this report; released, it goes and moves no Task"
    if found.order.state in {OrderState.WITHDRAWN, OrderState.REFUSED}:
        return f"the order is {found.order.state.value}, {first}"
    states = {line.key: line.state for line in found.lines}
    said = found.message.observations or found.message.documents
    if not said or any(states[key] not in _GONE for key in found.coverage.lines):
        return None
    if all(state is LineState.WITHDRAWN for state in states.values()):
        return f"the order is withdrawn, {first}"
    if all(states[key] is LineState.WITHDRAWN for key in found.coverage.lines):
        return f"every line that it is about was withdrawn, {first}"
    return f"every line that it is about has ended as cancelled, {first}"


def _questions(uow: UnitOfWork, found: Found, now: datetime) -> str | None:
    """What a person should say before the report goes out; None where nothing is odd."""
    message = found.message
    problems = [*oddities(message, now)]
    if late := with_result(found.lines, found.coverage.not_performed):
        problems.append(Problem("not_performed", f"names {has_result(late)}"))
    settled = Settled(uow, found.order.key, message.report_id, found.sent)
    problems += [*settled.gone_back(message), *settled.left_out(message)]
    return several(map(str, problems), "; ") or None
