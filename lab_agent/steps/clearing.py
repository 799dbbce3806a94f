"""Whether a report that found its order may go: is it expected, can it be said, is it meant, are its documents what they say.

What is cleared here can be delivered. A person may waive the questions (a late report, one that is hardly meant, an odd document
under the type that its bytes show), and never what has no legal form on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.coverage import Coverage, determine_coverage
from lab_agent.domain.journal import LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState, OrderState, ReportState
from lab_agent.domain.plausible import implausible_values
from lab_agent.domain.quoting import join_limited
from lab_agent.domain.results import LabReport
from lab_agent.errors import DataInvalidError, Problem
from lab_agent.ports.documents import Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.endings import describe_existing_result, lines_with_result
from lab_agent.steps.left_out import ReportHistory, lost_content, merge_with_previous
from lab_agent.steps.odd_documents import DocumentLookup, DocumentRejected, correct_content_types
from lab_agent.steps.order_names import order_codes
from lab_agent.steps.planning import UploadPlanner
from lab_agent.steps.reasons import OLDER_NEEDS_OPERATOR, defect_reason

_ENDED_WITHOUT_RESULT = frozenset({LineState.REJECTED, LineState.WITHDRAWN, LineState.CANCELLED})


@dataclass(frozen=True, slots=True)
class MatchedReport:
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
    any_uploaded: bool

    def merge_with_previous(self) -> MatchedReport:
        """As the whole that it is part of, for a laboratory system that sends only what is new."""
        known = order_codes(self.order)
        message = merge_with_previous(self.sent, self.message, self.coverage, self.lines, known)
        return replace(self, message=message, coverage=determine_coverage(message, self.lines, known))


class ReportHeld(LookupError):
    """The report waits for a person, as `state` says."""

    def __init__(self, state: ReportState, reason: str) -> None:
        super().__init__(reason)
        self.state = state


@dataclass(frozen=True, slots=True)
class ReleaseChecks:
    """Clears one report within a unit of work; nothing is written."""

    planner: UploadPlanner
    documents: Documents

    def check(
        self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime, *, override: bool
    ) -> tuple[LabReport, tuple[str, ...]]:
        """Give the report as it may go, and what a person's release changed in it. Raises `Waits`."""
        if not override and not matched_report.any_uploaded and (late := _unexpected_reason(matched_report)):
            raise ReportHeld(ReportState.HELD, late)
        if unmapped := self.planner.unmapped_reason(matched_report.message):
            raise ReportHeld(ReportState.UNMAPPED, unmapped)
        if not override and (question := self._find_questions(uow, matched_report, now)):
            raise ReportHeld(ReportState.HELD, question)
        try:
            message, changed = self._check_documents(uow, matched_report, override=override)
            # Planned for nobody: so delivery meets no surprise half-way.
            self.planner.plan(
                message, matched_report.order, matched_report.lines, matched_report.coverage, reader="anybody", urls={}
            )
        except DataInvalidError as exc:
            raise ReportHeld(ReportState.HELD, defect_reason(join_limited(map(str, exc.problems), "; "))) from exc
        return message, changed

    def _find_questions(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> str | None:
        """What a person should say before the report goes out; None where nothing is odd."""
        message, coverage = matched_report.message, matched_report.coverage
        problems = [*implausible_values(message, now)]
        if late := lines_with_result(matched_report.lines, coverage.not_performed):
            problems.append(Problem("not_performed", f"names {describe_existing_result(late)}"))
        settled = ReportHistory(uow, matched_report.order.key, message.report_id, matched_report.sent)
        problems += [
            *settled.check_status_reversal(message),
            *settled.check_dropped_values(message),
            *settled.check_emptied_report(message),
        ]
        problems += [*_find_dropped_lines(matched_report), *_find_lost_older_content(matched_report)]
        if strange := self.planner.unknown_tests_reason(matched_report.order, coverage.extra_items):
            mend = "add it to the catalogue; released, the report states the test of its first line"
            problems.append(Problem("items", strange, mend))
        return join_limited(map(str, problems), "; ") or None

    def _check_documents(
        self, uow: UnitOfWork, matched_report: MatchedReport, *, override: bool
    ) -> tuple[LabReport, tuple[str, ...]]:
        """As `told_truly`; where a document is odd, one that nobody can let go is told first. Raises `Waits`."""
        shelf = self._document_lookup(uow, matched_report)
        try:
            return correct_content_types(shelf, self.documents, matched_report.message, override=override)
        except DocumentRejected as odd:
            question = str(odd)
        try:
            correct_content_types(shelf, self.documents, matched_report.message, override=True)
        except DocumentRejected as odd:
            raise ReportHeld(ReportState.HELD, defect_reason(str(odd))) from odd
        raise ReportHeld(ReportState.HELD, question)

    def _document_lookup(self, uow: UnitOfWork, matched_report: MatchedReport) -> DocumentLookup:
        return DocumentLookup(uow, matched_report.order.key, self.planner.settings.documents)


def _unexpected_reason(matched_report: MatchedReport) -> str | None:
    """Why a report that is heard of for the first time is no longer expected; None where it is."""
    first = "and this is the first that is heard of this report; released, it goes and moves no Task"
    if matched_report.order.state in {OrderState.WITHDRAWN, OrderState.REJECTED}:
        return f"the order is {matched_report.order.state.value}, {first}"
    states = {line.key: line.state for line in matched_report.lines}
    said = matched_report.message.observations or matched_report.message.documents
    if not said or any(states[key] not in _ENDED_WITHOUT_RESULT for key in matched_report.coverage.lines):
        return None
    if all(state is LineState.WITHDRAWN for state in states.values()):
        return f"the order is withdrawn, {first}"
    if all(states[key] is LineState.WITHDRAWN for key in matched_report.coverage.lines):
        return f"every line that it is about was withdrawn, {first}"
    return f"every line that it is about has ended as cancelled, {first}"


def _find_dropped_lines(matched_report: MatchedReport) -> Iterator[Problem]:
    """Ask about lines with a result that a version before was about, and this one is not."""
    before = {key for each in matched_report.sent if each.state is ReportState.DELIVERED for key in each.lines}
    if gone := lines_with_result(matched_report.lines, before - {*matched_report.coverage.lines}):
        mend = "send the whole report; released, it is a report of the others alone"
        yield Problem("lines", f"leave out {join_limited(gone)}, which a version before was about", mend)


def _find_lost_older_content(matched_report: MatchedReport) -> Iterator[Problem]:
    """Ask about what an older version has to say, which waits for a person, and this one does not say."""
    for each in matched_report.waiting:
        if gone := lost_content(each, matched_report.message, matched_report.coverage.lines):
            mend = "decide about that one first, or send the whole report; released, this one goes, and that one waits on"
            yield Problem("report", f"leaves out {gone} of the version before it, {each.key}, {OLDER_NEEDS_OPERATOR}", mend)
