"""Whether a report that found its order may go: is it expected, can it be said, is it meant, are its documents what they say.

What is cleared here can be delivered. A person may waive the questions (a late report, one that is hardly meant, an odd document
under the type that its bytes show), and never what has no legal form on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.coverage import Coverage, cover
from lab_agent.domain.journal import LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState, OrderState, ReportState
from lab_agent.domain.plausible import oddities
from lab_agent.domain.quoting import several
from lab_agent.domain.results import LabReport
from lab_agent.errors import DataInvalidError, Problem
from lab_agent.ports.documents import Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.endings import has_result, with_result
from lab_agent.steps.left_out import Settled, completed, lost
from lab_agent.steps.odd_documents import OddDocument, Shelf, told_truly
from lab_agent.steps.order_names import names_of
from lab_agent.steps.planning import Planning
from lab_agent.steps.reasons import OLDER_WAITS, fault

_GONE = frozenset({LineState.REFUSED, LineState.WITHDRAWN, LineState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Found:
    """A report with the order and the lines that it is about.

    Of the other versions of it, oldest first: `sent` went before it, or are on their way; `waiting` lie between those and it, and
    wait for a person; `newer` are newer than it, and went or are on their way. `went` says whether the clinic has any.
    """

    report: ReportRecord
    message: LabReport
    order: OrderRecord
    lines: tuple[LineRecord, ...]
    coverage: Coverage
    sent: tuple[ReportRecord, ...]
    waiting: tuple[ReportRecord, ...]
    newer: tuple[ReportRecord, ...]
    went: bool

    def completed(self) -> Found:
        """As the whole that it is part of, for a laboratory system that sends only what is new."""
        known = names_of(self.order)
        message = completed(self.sent, self.message, self.coverage, self.lines, known)
        return replace(self, message=message, coverage=cover(message, self.lines, known))


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
        if not waive and not found.went and (late := _too_late(found)):
            raise Waits(ReportState.HELD, late)
        if unmapped := self.planning.unmapped(found.message):
            raise Waits(ReportState.UNMAPPED, unmapped)
        if not waive and (question := self._questions(uow, found, now)):
            raise Waits(ReportState.HELD, question)
        try:
            message, changed = self._documents_told_truly(uow, found, waive=waive)
            # Planned for nobody: so delivery meets no surprise half-way.
            self.planning.plan(message, found.order, found.lines, found.coverage, reader="anybody", urls={})
        except DataInvalidError as exc:
            raise Waits(ReportState.HELD, fault(several(map(str, exc.problems), "; "))) from exc
        return message, changed

    def _questions(self, uow: UnitOfWork, found: Found, now: datetime) -> str | None:
        """What a person should say before the report goes out; None where nothing is odd."""
        message, coverage = found.message, found.coverage
        problems = [*oddities(message, now)]
        if late := with_result(found.lines, coverage.not_performed):
            problems.append(Problem("not_performed", f"names {has_result(late)}"))
        settled = Settled(uow, found.order.key, message.report_id, found.sent)
        problems += [*settled.gone_back(message), *settled.left_out(message), *settled.emptied(message)]
        problems += [*_lines_left_out(found), *_overtakes(found)]
        if strange := self.planning.strange(found.order, coverage.extra):
            mend = "add it to the catalogue; released, the report states the test of its first line"
            problems.append(Problem("items", strange, mend))
        return several(map(str, problems), "; ") or None

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


def _lines_left_out(found: Found) -> Iterator[Problem]:
    """Ask about lines with a result that a version before was about, and this one is not."""
    before = {key for each in found.sent if each.state is ReportState.DELIVERED for key in each.lines}
    if gone := with_result(found.lines, before - {*found.coverage.lines}):
        mend = "send the whole report; released, it is a report of the others alone"
        yield Problem("lines", f"leave out {several(gone)}, which a version before was about", mend)


def _overtakes(found: Found) -> Iterator[Problem]:
    """Ask about what an older version has to say, which waits for a person, and this one does not say."""
    for each in found.waiting:
        if gone := lost(each, found.message, found.coverage.lines):
            mend = "decide about that one first, or send the whole report; released, this one goes, and that one waits on"
            yield Problem("report", f"leaves out {gone} of the version before it, {each.key}, {OLDER_WAITS}", mend)
