"""What a new version of a report takes back: values that it leaves out, and what was final and is not any more.

The interface knows no Observation status that would take a value back (registered, preliminary, final, amended), and nothing in a
message tells a value that was withdrawn from one that was sent before and not repeated.

Why a result is held: the sentences that people read, and by which of them the program knows what will bring it further.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.lab_messages import LabReport, NotPerformed, ObservationStatus, ReportedObservation, ReportStatus
from lab_agent.domain.records import LineRecord, ReportRecord
from lab_agent.domain.report_coverage import Coverage, OrderCodes, determine_coverage, is_only_not_performed
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.text import join_limited, shorten
from lab_agent.errors import Problem
from lab_agent.fhir.content_digest import split_digest
from lab_agent.fhir.report_builder import FINAL_STATUSES, observation_identifiers_by_label, observation_labels, report_identifier
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.serialization import load_stored_message

_FINAL_STATUSES = frozenset({ObservationStatus.FINAL, ObservationStatus.AMENDED})


def dropped_observations(before: Iterable[ReportRecord], message: LabReport) -> Mapping[str, ReportedObservation]:
    """Give the observations of earlier versions that this one has not, by their names for people."""
    named = {name: one for each in _load_reports(before) for name, one in _observations_by_name(each).items()}
    return {name: one for name, one in named.items() if name not in observation_labels(message)}


@dataclass(frozen=True, slots=True)
class ReportHistory:
    """What was final of a report once: by the record of what is on the service, and by its versions on their way."""

    uow: UnitOfWork
    order: OrderKey
    report_id: str
    sent: tuple[ReportRecord, ...]

    def check_dropped_values(self, message: LabReport) -> Iterator[Problem]:
        """Ask about values that were final and are not there any more; what was preliminary may go without a question."""
        gone = dropped_observations(self.sent, message)
        if final := self._previously_final(_with_dropped_values(self.sent, message), gone):
            what = f"leave out {join_names(final)}, final in a version before; withdrawn, or only not repeated?"
            mend = "send the whole report; released, it names them no more, and they stay on the service"
            yield Problem("observations", what, mend)

    def check_status_reversal(self, message: LabReport) -> Iterator[Problem]:
        """Ask about a report, and about values of it, that were final and are not any more."""
        if message.status is not ReportStatus.FINAL and self._was_report_final():
            mend = "send it when it is final again; released, it stays final there"
            yield Problem("status", f"goes from final back to {message.status.value}", mend)
        open_ones = [name for name, one in _observations_by_name(message).items() if one.status not in _FINAL_STATUSES]
        if back := self._previously_final(message, open_ones):
            mend = "send them when they are final again; released, what has changed goes as amended"
            yield Problem("observations", f"take {join_names(back)} from final back to preliminary", mend)

    def check_emptied_report(self, message: LabReport) -> Iterator[Problem]:
        """Ask about a report that had something to say, and has nothing but what was not performed."""
        if is_only_not_performed(message) and any(has_content(each) for each in _load_reports(self.sent)):
            mend = "send the whole report; released, it names nothing any more, and the values stay on the service"
            yield Problem("observations", "are missing: a version before had values or documents, and this one has none", mend)

    def _previously_final(self, message: LabReport, names: Collection[str]) -> list[str]:
        """Those of the names in `message` that were final."""
        said = {name for each in _load_reports(self.sent) for name in _final_names(each)}
        values = observation_identifiers_by_label(self.order, message) if names else {}
        return [name for name in names if name in said or self._is_final(values[name])]

    def _was_report_final(self) -> bool:
        said = any(each.status is ReportStatus.FINAL and not is_only_not_performed(each) for each in _load_reports(self.sent))
        return said or self._is_final(report_identifier(self.order, self.report_id))

    def _is_final(self, identifier: str) -> bool:
        known = self.uow.uploads.get(identifier)
        return known is not None and split_digest(known.digest)[0] in FINAL_STATUSES


def merge_with_previous(
    sent: Sequence[ReportRecord], message: LabReport, own_coverage: Coverage, order: Sequence[LineRecord], known: OrderCodes
) -> LabReport:
    """Give a report that says only what is new as the whole that it is part of: with the values and the lines of those before.

    `own` is what it covers alone. It completes what it would complete alone, and what those on their way are to complete; what
    they call not performed, it does.
    """
    undelivered = [
        determine_coverage(each, order, known)
        for record in sent
        if record.state is not ReportState.DELIVERED
        for each in _load_reports((record,))
    ]
    lines = tuple(dict.fromkeys(key for each in sent for key in each.lines if key not in own_coverage.lines))
    if lines or undelivered:
        items = (item for each in _load_reports(sent) for item in each.items if item in known.codes)
        absent = {key: reason for each in (*undelivered, own_coverage) for key, reason in each.not_performed.items()}
        message = replace(
            message,
            lines=(*own_coverage.lines, *lines),
            items=tuple(dict.fromkeys((*items, *message.items))),
            completes=tuple(dict.fromkeys(key for each in (*undelivered, own_coverage) for key in each.completes)),
            not_performed=tuple(NotPerformed(line=key, reason=reason) for key, reason in absent.items()),
        )
    return _with_dropped_values(sent, message)


def lost_content(older: ReportRecord, message: LabReport, lines: Collection[LineKey]) -> str:
    """What would not be heard of any more if `message`, about these lines, went and the older version did not; else empty."""
    before = load_stored_message(older.body)
    if not isinstance(before, LabReport):
        return ""
    found = []
    if values := [name for name in _final_names(before) if name not in _final_names(message)]:
        found.append(join_names(values))
    final, still = before.status is ReportStatus.FINAL, message.status is ReportStatus.FINAL
    if not is_only_not_performed(before) and (gone := [key for key in older.lines if final and not (still and key in lines)]):
        found.append(f"the end of line {join_limited(gone)}" if not still else f"line {join_limited(gone)}")
    if final and before.documents and not message.documents:
        found.append("a document")
    said = {*map(_entry_name, message.not_performed), *message.lines, *message.items}
    if any(_entry_name(each) not in said for each in before.not_performed):
        found.append("what was not performed")
    return join_limited(found)


def lost_content_to(older: ReportRecord, newer: ReportRecord) -> str:
    """As `lost`, to a version as it was matched."""
    message = load_stored_message(newer.body)
    return lost_content(older, message, newer.lines) if isinstance(message, LabReport) else ""


def has_content(report: LabReport) -> bool:
    """Whether a report has anything that an upload would tell the clinic."""
    return bool(report.observations or report.documents)


def join_names(values: Iterable[str]) -> str:
    """Names of observations in a sentence."""
    return join_limited(map(shorten, values))


def _with_dropped_values(before: Iterable[ReportRecord], message: LabReport) -> LabReport:
    """Give the report with what it leaves out behind its own observations, where each keeps its name."""
    return replace(message, observations=(*message.observations, *dropped_observations(before, message).values()))


def _entry_name(entry: NotPerformed) -> str:
    """What an entry names; nothing where it means all of its report."""
    return entry.line or entry.item or ""


def _final_names(message: LabReport) -> list[str]:
    return [name for name, one in _observations_by_name(message).items() if one.status in _FINAL_STATUSES]


def _load_reports(records: Iterable[ReportRecord]) -> list[LabReport]:
    return [report for each in records if isinstance(report := load_stored_message(each.body), LabReport)]


def _observations_by_name(message: LabReport) -> dict[str, ReportedObservation]:
    return dict(zip(observation_labels(message), message.observations, strict=True))


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
