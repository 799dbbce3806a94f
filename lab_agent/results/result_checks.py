"""Whether a report that found its order may be delivered: is it expected and plausible, has it a legal form, are its documents
what they say they are.

An operator may override the questions (an unexpected report, an implausible one, a document of another type or cut off), but
nothing that has no legal form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from lab_agent.fhir.reference_spelling import ReferenceWriter
from lab_agent.lis.lab_messages import Document, LabReport
from lab_agent.lis.report_documents import (
    MEDIA_TYPE_HINT,
    OCTET_STREAM,
    URL_HINT,
    documents_with_paths,
    is_media_type,
    is_openable_url,
    map_documents,
)
from lab_agent.orders.line_lifecycle import describe_existing_result, lines_with_result
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.results.documents import DocumentDefect, Documents
from lab_agent.results.hold_reasons import Hold, held, unmapped
from lab_agent.results.order_lookup import OrderPart
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.results.report_coverage import Coverage, determine_coverage
from lab_agent.results.report_versions import implausible_values
from lab_agent.results.result_history import ReportHistory, ReportVersion, merge_with_previous
from lab_agent.results.result_versions import OtherVersions
from lab_agent.results.upload_planning import UploadPlanner
from lab_agent.shared.errors import DataInvalidError, Problem
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import LineState, OrderState
from lab_agent.shared.text import join_limited, shorten
from lab_agent.store.unit_of_work import UnitOfWork

_ENDED_WITHOUT_RESULT = frozenset({LineState.REJECTED, LineState.WITHDRAWN, LineState.CANCELLED})
_ABOUT_OTHER_VERSIONS = frozenset({HoldReason.WAITS_FOR_VERSION, HoldReason.CONFLICTING_VERSION, HoldReason.SUPERSEDED_BY_NEWER})


@dataclass(frozen=True, slots=True)
class MatchedReport:
    """A report with the part of an order that it is about, and the other versions of it.

    `any_uploaded` says whether the clinic has any version; `released`, whether an operator has released the report: that answers
    the reason that was shown. A question is asked after the wait for other versions, so its answer is one to the wait as well.
    """

    report: ReportRecord
    message: LabReport
    part: OrderPart
    coverage: Coverage
    others: OtherVersions
    any_uploaded: bool
    released: bool

    @property
    def order(self) -> OrderRecord:
        """The order."""
        return self.part.order

    @property
    def lines(self) -> tuple[LineRecord, ...]:
        """The lines that the report may be about: those of its laboratory system."""
        return self.part.lines

    @property
    def answered(self) -> HoldReason | None:
        """The hold reason that an operator has answered; None for a defect, which no release can answer."""
        answerable = self.released and self.report.hold_reason is not HoldReason.DEFECT
        return self.report.hold_reason if answerable else None

    @property
    def override(self) -> bool:
        """Whether an operator has answered the questions about the report itself."""
        return self.answered is not None and self.answered not in _ABOUT_OTHER_VERSIONS

    @property
    def version(self) -> ReportVersion:
        """The report as a version among the others."""
        return ReportVersion(self.report, self.message, self.message)

    def merge_with_previous(self) -> MatchedReport:
        """As the whole that it is part of, for a laboratory system that sends only what is new."""
        if self.others.delivered is None:
            return self
        known = self.part.codes
        message = merge_with_previous(self.others.delivered, self.message, self.coverage, known)
        return replace(self, message=message, coverage=determine_coverage(message, self.lines, known))


@dataclass(frozen=True, slots=True)
class ClearedReport:
    """A report as it may be delivered, and what an operator's release changed in it."""

    message: LabReport
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseChecks:
    """Checks one report within a unit of work; nothing is written."""

    planner: UploadPlanner
    documents: Documents

    def check(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> ClearedReport | Hold:
        """Give the report as it may go, or why it waits."""
        override = matched_report.override
        if not override and not matched_report.any_uploaded and (ended := _find_ended(matched_report)):
            return held(HoldReason.UNEXPECTED, ended)
        if lacking := self.planner.unmapped_reason(matched_report.message):
            return unmapped(lacking)
        if not override and (questions := self._find_questions(uow, matched_report, now)):
            return held(HoldReason.QUESTION, questions)
        cleared = self._check_documents(uow, matched_report)
        if isinstance(cleared, Hold):
            return cleared
        try:  # planned for nobody: so delivery meets no surprise half-way
            self.planner.plan(
                cleared.message,
                matched_report.part,
                matched_report.coverage,
                reader="anybody",
                urls={},
                references=ReferenceWriter(),
            )
        except DataInvalidError as exc:
            return held(HoldReason.DEFECT, join_limited(map(str, exc.problems), "; "))
        return cleared

    def _find_questions(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> str:
        """What an operator should decide before the report goes out; empty where nothing is odd."""
        message, coverage, lines = matched_report.message, matched_report.coverage, matched_report.lines
        problems = [*implausible_values(message, now)]
        if late := lines_with_result(lines, coverage.not_performed):
            problems.append(Problem("not_performed", f"names {describe_existing_result(late)}"))
        history = ReportHistory(uow, matched_report.part.key, message.report_id, matched_report.others.delivered)
        problems += history.questions(message, lines, coverage)
        if strange := self.planner.unknown_tests_reason(matched_report.order, coverage.extra_items):
            hint = "add it to the catalogue; released, the report states the test of its first line"
            problems.append(Problem("items", strange, hint))
        return join_limited(map(str, problems), "; ")

    def _check_documents(self, uow: UnitOfWork, matched_report: MatchedReport) -> ClearedReport | Hold:
        """As `correct_content_types`; of several odd documents, one that no release can send is named first."""
        lookup = DocumentLookup(uow, matched_report.order.key, self.planner.settings.documents)
        try:
            corrected = correct_content_types(lookup, self.documents, matched_report.message)
        except DocumentRejected as rejected:
            return held(HoldReason.DEFECT, str(rejected))
        if corrected.mismatch and not matched_report.override:
            return held(HoldReason.DOCUMENT_MISMATCH, corrected.mismatch)
        return corrected.cleared


def document_name(order: OrderKey, content_sha256: str, content_type: str, *, hosted: bool) -> str:
    """Name a document of an order as the journal knows it; the same bytes under another type are another document."""
    place = "hosted." if hosted else ""
    return f"{order}.{place}{content_sha256}.{sha256(content_type.encode()).hexdigest()[:16]}"


class DocumentRejected(LookupError):
    """A document that cannot be sent, whoever releases it."""


@dataclass(frozen=True, slots=True)
class DocumentLookup:
    """Where the documents of an order are kept; `mode` is the setting `results.documents`."""

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
        if self._can_go_without_content(document.file, document.content_type):
            return None
        return DocumentDefect("is not kept any more", hint="send it again")

    def _can_go_without_content(self, file: str, content_type: str) -> bool:
        name = document_name(self.order, file, content_type, hosted=False)
        known = self.uow.uploads.get(name)
        return self.mode == "none" or (self.mode == "upload" and known is not None and bool(known.resource_id))


@dataclass(frozen=True, slots=True)
class CorrectedDocuments:
    """A report with every document under its true type; `mismatch` is the first that claimed another, or is not whole."""

    cleared: ClearedReport
    mismatch: str


def correct_content_types(lookup: DocumentLookup, documents: Documents, message: LabReport) -> CorrectedDocuments:
    """Put every document under the type that its content shows.

    Raises `DocumentRejected`, naming the first that is empty, too large, gone or at no address.
    """
    paths = iter([path for path, _ in documents_with_paths(message)])
    mismatches: list[str] = []
    changes: list[str] = []

    def correct(document: Document) -> Document:
        path, defect = next(paths), lookup.find_defect(documents, document)
        if defect is None:
            return document
        problem = str(Problem(path, defect.text, defect.hint))
        if defect.actual_type is None:
            raise DocumentRejected(problem)
        mismatches.append(problem)
        changes.append(_describe_release(path, document.content_type, defect.actual_type))
        return replace(document, content_type=defect.actual_type)

    corrected = map_documents(message, correct)
    return CorrectedDocuments(ClearedReport(corrected, tuple(changes)), next(iter(mismatches), ""))


def _describe_release(path: str, declared: str, actual: str) -> str:
    return f"{path} is sent as it is" if declared == actual else f"{path} is sent as {actual}, not as {shorten(declared)}"


def _find_address_defect(document: Document) -> DocumentDefect | None:
    if not is_openable_url(document.url or ""):
        return DocumentDefect("is at no address that a clinic could open", hint=URL_HINT)
    if not is_media_type(document.content_type):
        return DocumentDefect(
            f"says that it is '{shorten(document.content_type)}', which is no media type", OCTET_STREAM, MEDIA_TYPE_HINT
        )
    return None


def _find_ended(matched_report: MatchedReport) -> str | None:
    """What has ended, so that the first message of a report is not expected any more; None where it is."""
    if matched_report.order.state in {OrderState.WITHDRAWN, OrderState.REJECTED}:
        return f"the order is {matched_report.order.state.value}"
    states = {line.key: line.state for line in matched_report.lines}
    has_content = matched_report.message.observations or matched_report.message.documents
    if not has_content or any(states[key] not in _ENDED_WITHOUT_RESULT for key in matched_report.coverage.lines):
        return None
    if all(state is LineState.WITHDRAWN for state in states.values()):
        return "the order is withdrawn"
    if all(states[key] is LineState.WITHDRAWN for key in matched_report.coverage.lines):
        return "every line that it is about was withdrawn"
    return "every line that it is about has ended as cancelled"
