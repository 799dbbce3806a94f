"""What a version of a report says compared with another: what it takes back, what it leaves out, and the two as one whole.

Two versions are compared by what the laboratory system sent: what a version keeps of the one before it, it does not say.

The interface has no Observation status that takes a value back (registered, preliminary, final, amended), and nothing in a
message tells a value that was withdrawn from one that was only not repeated. So whatever was final and is missing is a question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from lab_agent.fhir.content_digest import split_digest
from lab_agent.fhir.report_builder import FINAL_STATUSES, observation_identifiers_by_label, observation_labels, report_identifier
from lab_agent.lis.lab_messages import LabReport, NotPerformed, ReportedObservation, ReportStatus
from lab_agent.lis.serialization import load_stored_message
from lab_agent.orders.line_lifecycle import lines_with_result
from lab_agent.orders.records import LineRecord
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_coverage import Coverage, OrderCodes, is_only_not_performed
from lab_agent.shared.errors import Problem
from lab_agent.shared.ids import LineKey, WorkOrderKey
from lab_agent.shared.text import join_limited, shorten
from lab_agent.store.unit_of_work import UnitOfWork

_VALUES = tuple(each.name for each in fields(ReportedObservation) if each.name.startswith("value_"))


@dataclass(frozen=True, slots=True)
class ReportVersion:
    """One version of a report, decoded once: as it was sent, and as a `whole` with what it keeps of the version before it.

    The lines of the record are those that it names itself.
    """

    record: ReportRecord
    sent: LabReport
    whole: LabReport

    @property
    def whole_lines(self) -> tuple[LineKey, ...]:
        """The lines that it is about, with those that it keeps."""
        return tuple(dict.fromkeys((*self.record.lines, *map(LineKey, self.whole.lines))))


def load_version(record: ReportRecord) -> ReportVersion | None:
    """Decode a version; None for a message that is no report."""
    sent = load_stored_message(record.body)
    whole = load_stored_message(record.outgoing_body) if record.outgoing_body is not None else sent
    return ReportVersion(record, sent, whole) if isinstance(sent, LabReport) and isinstance(whole, LabReport) else None


def kept_names(record: ReportRecord) -> tuple[str, ...]:
    """The observations that go out with a version, and that it keeps of the one before it; by their names for people."""
    version = load_version(record) if record.outgoing_body is not None else None
    if version is None:
        return ()
    said = observation_labels(version.sent)
    return tuple(name for name in observation_labels(version.whole) if name not in said)


def lost_content(older: ReportVersion, newer: ReportVersion) -> str:
    """What the clinic would never read if the newer version were delivered and the older one were not; empty for nothing."""
    before, after = older.sent, newer.sent
    found = []
    if values := list(_lost_values(older, newer)):
        found.append(join_names(values))
    was_final, still_final = before.status is ReportStatus.FINAL, after.status is ReportStatus.FINAL
    if was_final and not is_only_not_performed(before):
        found += _lost_lines(older.record.lines, newer.record.lines, still_final=still_final)
    if was_final and before.documents and not after.documents:
        found.append("a document")
    named = {*map(_entry_name, after.not_performed), *after.lines, *after.items}
    if any(_entry_name(each) not in named for each in before.not_performed):
        found.append("what was not performed")
    return join_limited(found)


def differing_content(one: ReportVersion, other: ReportVersion) -> str:
    """What a version says finally that the other one says differently, or not finally yet; empty for nothing."""
    said, other_said = _final_values(one.sent), _final_values(other.sent)
    both = said.keys() & _observations_by_name(other.sent).keys()
    found = [shorten(name) for name in said if name in both and other_said.get(name) != said[name]]
    documents = {each.file or each.url for each in one.sent.documents}, {each.file or each.url for each in other.sent.documents}
    if all(documents) and documents[0] != documents[1]:
        found.append("a document")
    return join_limited(found)


def _final_values(message: LabReport) -> dict[str, tuple[object, ...]]:
    named = _observations_by_name(message).items()
    return {name: tuple(getattr(one, each) for each in _VALUES) for name, one in named if one.status in FINAL_STATUSES}


def _lost_values(older: ReportVersion, newer: ReportVersion) -> Iterator[str]:
    """Final values of the older version that the newer one neither says nor keeps as they are."""
    said, kept = _observations_by_name(newer.sent), _observations_by_name(newer.whole)
    for name, one in _observations_by_name(older.sent).items():
        is_said = name in said and said[name].status in FINAL_STATUSES
        if one.status in FINAL_STATUSES and not is_said and kept.get(name) != one:
            yield name


def _lost_lines(before: Sequence[LineKey], after: Collection[LineKey], *, still_final: bool) -> Iterator[str]:
    if not still_final and before:
        yield f"the end of line {join_limited(before)}"
    elif gone := [key for key in before if key not in after]:
        yield f"line {join_limited(gone)}"


def dropped_observations(previous: LabReport | None, message: LabReport) -> Mapping[str, ReportedObservation]:
    """Give the observations of the previous version that this one lacks, by their names for people."""
    named = _observations_by_name(previous) if previous else {}
    return {name: one for name, one in named.items() if name not in observation_labels(message)}


def merge_with_previous(previous: ReportVersion, message: LabReport, own_coverage: Coverage, known: OrderCodes) -> LabReport:
    """Give a report that says only what is new as the whole that it is part of: with the values and the lines of the one before.

    It completes and calls not performed what it does by itself (`own_coverage`).
    """
    lines = tuple(key for key in previous.whole_lines if key not in own_coverage.lines)
    if lines:
        items = (item for item in previous.whole.items if item in known.codes)
        message = replace(
            message,
            lines=(*own_coverage.lines, *lines),
            items=tuple(dict.fromkeys((*items, *message.items))),
            completes=own_coverage.completes,
            not_performed=tuple(NotPerformed(line=key, reason=reason) for key, reason in own_coverage.not_performed.items()),
        )
    return _with_dropped_values(previous.whole, message)


@dataclass(frozen=True, slots=True)
class ReportHistory:
    """What was final of a report before: in the version that was delivered (`previous`), and by the record of the uploads."""

    uow: UnitOfWork
    part: WorkOrderKey
    report_id: str
    previous: ReportVersion | None

    def questions(self, message: LabReport, lines: Sequence[LineRecord], coverage: Coverage) -> Iterator[Problem]:
        """Ask about what was final, or had a result, and is not or has not any more."""
        yield from self._status_reversal(message)
        yield from self._dropped_values(message)
        yield from self._emptied_report(message)
        yield from self._dropped_lines(lines, coverage)

    def _dropped_values(self, message: LabReport) -> Iterator[Problem]:
        """What was preliminary may go without a question."""
        previous = self.previous.whole if self.previous else None
        gone = dropped_observations(previous, message)
        if final := self._previously_final(_with_dropped_values(previous, message), gone):
            text = f"leave out {join_names(final)}, final in a version before; withdrawn, or only not repeated?"
            hint = "send the whole report; released, it no longer names them, and they stay on the service"
            yield Problem("observations", text, hint)

    def _status_reversal(self, message: LabReport) -> Iterator[Problem]:
        if message.status is not ReportStatus.FINAL and self._was_report_final():
            hint = "send it when it is final again; released, it stays final on the service"
            yield Problem("status", f"goes from final back to {message.status.value}", hint)
        open_ones = [name for name, one in _observations_by_name(message).items() if one.status not in FINAL_STATUSES]
        if back := self._previously_final(message, open_ones):
            hint = "send them when they are final again; released, what has changed is sent as amended"
            yield Problem("observations", f"take {join_names(back)} from final back to preliminary", hint)

    def _emptied_report(self, message: LabReport) -> Iterator[Problem]:
        if is_only_not_performed(message) and self.previous and has_content(self.previous.whole):
            hint = "send the whole report; released, it names nothing any more, and the values stay on the service"
            yield Problem("observations", "are missing: a version before had values or documents, and this one has none", hint)

    def _dropped_lines(self, lines: Sequence[LineRecord], coverage: Coverage) -> Iterator[Problem]:
        before = {*self.previous.whole_lines} if self.previous else set()
        if gone := lines_with_result(lines, before - {*coverage.lines}):
            hint = "send the whole report; released, it is a report of the others alone"
            yield Problem("lines", f"leave out {join_limited(gone)}, which a version before was about", hint)

    def _previously_final(self, message: LabReport, names: Collection[str]) -> list[str]:
        """Those of the names in `message` that were final."""
        reported = set(_final_names(self.previous.whole)) if self.previous else set()
        values = observation_identifiers_by_label(self.part, message) if names else {}
        return [name for name in names if name in reported or self._is_final(values[name])]

    def _was_report_final(self) -> bool:
        before = self.previous.whole if self.previous else None
        reported = before is not None and before.status is ReportStatus.FINAL and not is_only_not_performed(before)
        return reported or self._is_final(report_identifier(self.part, self.report_id))

    def _is_final(self, identifier: str) -> bool:
        known = self.uow.uploads.get(identifier)
        return known is not None and split_digest(known.digest).status in FINAL_STATUSES


def has_content(report: LabReport) -> bool:
    """Whether a report has anything that an upload would tell the clinic."""
    return bool(report.observations or report.documents)


def join_names(values: Iterable[str]) -> str:
    """Names of observations in a sentence."""
    return join_limited(map(shorten, values))


def _with_dropped_values(previous: LabReport | None, message: LabReport) -> LabReport:
    """Give the report with what it leaves out behind its own observations, where each keeps its name."""
    return replace(message, observations=(*message.observations, *dropped_observations(previous, message).values()))


def _entry_name(entry: NotPerformed) -> str:
    """What an entry names; nothing where it means all of its report."""
    return entry.line or entry.item or ""


def _final_names(message: LabReport) -> list[str]:
    return [name for name, one in _observations_by_name(message).items() if one.status in FINAL_STATUSES]


def _observations_by_name(message: LabReport) -> dict[str, ReportedObservation]:
    return dict(zip(observation_labels(message), message.observations, strict=True))
