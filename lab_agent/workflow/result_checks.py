"""Whether a report that found its order may go: is it expected, can it be said, is it meant, are its documents what they say.

What is cleared here can be delivered. A person may waive the questions (a late report, one that is hardly meant, an odd document
under the type that its bytes show), and never what has no legal form on the wire.

Under what name the journal knows a document of an order that is on the service, or served here, already.

The same bytes under another type are another document: what the clinic asks for (`Accept`) is the type.

Documents on their way out: each is what it says, or a person lets it go under the type that its bytes show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.lab_messages import Document, LabReport
from lab_agent.domain.records import LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.report_coverage import Coverage, determine_coverage
from lab_agent.domain.report_documents import (
    MEDIA_TYPE_HINT,
    OCTET_STREAM,
    URL_HINT,
    documents_with_paths,
    is_media_type,
    is_openable_url,
    map_documents,
)
from lab_agent.domain.report_versions import implausible_values
from lab_agent.domain.state_machines import LineState, OrderState, ReportState
from lab_agent.domain.text import join_limited, shorten
from lab_agent.errors import DataInvalidError, Problem
from lab_agent.ports.documents import DocumentDefect, Documents
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.workflow.line_lifecycle import describe_existing_result, lines_with_result
from lab_agent.workflow.order_lookup import order_codes
from lab_agent.workflow.result_versions import (
    OLDER_NEEDS_OPERATOR,
    ReportHistory,
    defect_reason,
    lost_content,
    merge_with_previous,
)
from lab_agent.workflow.upload_planning import UploadPlanner


def document_name(order: OrderKey, content_sha256: str, content_type: str, *, hosted: bool) -> str:
    """Name a document; `content` is the SHA-256 of its bytes, which names it in the vault too."""
    place = "hosted." if hosted else ""
    return f"{order}.{place}{content_sha256}.{sha256(content_type.encode()).hexdigest()[:16]}"


class DocumentRejected(LookupError):
    """A document that cannot go as it is."""


@dataclass(frozen=True, slots=True)
class DocumentLookup:
    """Where the documents of an order are kept; `way` is the setting `results.documents`."""

    uow: UnitOfWork
    order: OrderKey
    mode: str

    def find_defect(self, documents: Documents, document: Document) -> DocumentDefect | None:
        """What keeps a document from being sent; None for nothing, also where the service has it since an earlier version."""
        if document.file is None:
            return _find_address_defect(document)
        kept = self.uow.vault.document(document.file)
        if kept is not None:
            return documents.find_defect(kept[0], document.content_type)
        return (
            None
            if self._can_go_without_content(document.file, document.content_type)
            else DocumentDefect("is not kept any more", hint="send it again")
        )

    def _can_go_without_content(self, file: str, content_type: str) -> bool:
        name = document_name(self.order, file, content_type, hosted=False)
        return self.mode == "none" or (self.mode == "upload" and self.uow.uploads.get(name) is not None)


def correct_content_types(
    lookup: DocumentLookup, documents: Documents, message: LabReport, *, override: bool
) -> tuple[LabReport, tuple[str, ...]]:
    """Give the report with every document under a true type, and what was changed for that.

    Raises `OddDocument`, naming the first that cannot go: any odd one, unless a person waives that; one that is empty, too large,
    gone or at no address whoever says so.
    """
    places, changed = iter([where for where, _ in documents_with_paths(message)]), []

    def look(document: Document) -> Document:
        where, fault = next(places), lookup.find_defect(documents, document)
        if fault is None:
            return document
        if fault.actual_type is None or not override:
            raise DocumentRejected(str(Problem(where, fault.text, fault.hint)))
        changed.append(f"{where} goes as {fault.actual_type}, and not as {shorten(document.content_type)}")
        return replace(document, content_type=fault.actual_type)

    return map_documents(message, look), tuple(changed)


def _find_address_defect(document: Document) -> DocumentDefect | None:
    if not is_openable_url(document.url or ""):
        return DocumentDefect("is at no address that a clinic could open", hint=URL_HINT)
    if not is_media_type(document.content_type):
        return DocumentDefect(
            f"says that it is '{shorten(document.content_type)}', which is no media type", OCTET_STREAM, MEDIA_TYPE_HINT
        )
    return None


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
