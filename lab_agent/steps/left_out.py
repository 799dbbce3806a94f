"""What a new version of a report takes back: values that it leaves out, and what was final and is not any more.

The interface knows no Observation status that would take a value back (registered, preliminary, final, amended), and nothing in a
message tells a value that was withdrawn from one that was sent before and not repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab_agent.codec import load_kept
from lab_agent.domain.coverage import Coverage, Names, cover, only_refuses
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import LineRecord, ReportRecord
from lab_agent.domain.lifecycle import ReportState
from lab_agent.domain.quoting import quoted, several
from lab_agent.domain.results import LabReport, NotPerformed, ObservationStatus, ReportedObservation, ReportStatus
from lab_agent.errors import Problem
from lab_agent.fhir.stable import status_and_hash
from lab_agent.fhir.uploads import FINAL, observation_ids, observation_values, report_value
from lab_agent.ports.store import UnitOfWork

_SETTLED = frozenset({ObservationStatus.FINAL, ObservationStatus.AMENDED})


def left_out(before: Iterable[ReportRecord], message: LabReport) -> Mapping[str, ReportedObservation]:
    """Give the observations of earlier versions that this one has not, by their names for people."""
    named = {name: one for each in _messages(before) for name, one in _named(each).items()}
    return {name: one for name, one in named.items() if name not in observation_ids(message)}


@dataclass(frozen=True, slots=True)
class Settled:
    """What was final of a report once: by the record of what is on the service, and by its versions on their way."""

    uow: UnitOfWork
    order: OrderKey
    report_id: str
    sent: tuple[ReportRecord, ...]

    def left_out(self, message: LabReport) -> Iterator[Problem]:
        """Ask about values that were final and are not there any more; what was preliminary may go without a question."""
        gone = left_out(self.sent, message)
        if final := self._once_final(_with_values(self.sent, message), gone):
            what = f"leave out {names(final)}, final in a version before; withdrawn, or only not repeated?"
            mend = "send the whole report; released, it names them no more, and they stay on the service"
            yield Problem("observations", what, mend)

    def gone_back(self, message: LabReport) -> Iterator[Problem]:
        """Ask about a report, and about values of it, that were final and are not any more."""
        if message.status is not ReportStatus.FINAL and self._report_was_final():
            mend = "send it when it is final again; released, it stays final there"
            yield Problem("status", f"goes from final back to {message.status.value}", mend)
        open_ones = [name for name, one in _named(message).items() if one.status not in _SETTLED]
        if back := self._once_final(message, open_ones):
            mend = "send them when they are final again; released, what has changed goes as amended"
            yield Problem("observations", f"take {names(back)} from final back to preliminary", mend)

    def emptied(self, message: LabReport) -> Iterator[Problem]:
        """Ask about a report that had something to say, and has nothing but what was not performed."""
        if only_refuses(message) and any(has_content(each) for each in _messages(self.sent)):
            mend = "send the whole report; released, it names nothing any more, and the values stay on the service"
            yield Problem("observations", "are missing: a version before had values or documents, and this one has none", mend)

    def _once_final(self, message: LabReport, asked: Collection[str]) -> list[str]:
        """Those of the names in `message` that were final."""
        said = {name for each in _messages(self.sent) for name in _final(each)}
        values = observation_values(self.order, message) if asked else {}
        return [name for name in asked if name in said or self._is_final(values[name])]

    def _report_was_final(self) -> bool:
        said = any(each.status is ReportStatus.FINAL and not only_refuses(each) for each in _messages(self.sent))
        return said or self._is_final(report_value(self.order, self.report_id))

    def _is_final(self, identifier: str) -> bool:
        known = self.uow.uploads.get(identifier)
        return known is not None and status_and_hash(known.digest)[0] in FINAL


def completed(
    sent: Sequence[ReportRecord], message: LabReport, own: Coverage, order: Sequence[LineRecord], known: Names
) -> LabReport:
    """Give a report that says only what is new as the whole that it is part of: with the values and the lines of those before.

    `own` is what it covers alone. It completes what it would complete alone, and what those on their way are to complete; what
    they call not performed, it does.
    """
    undelivered = [
        cover(each, order, known) for record in sent if record.state is not ReportState.DELIVERED for each in _messages((record,))
    ]
    lines = tuple(dict.fromkeys(key for each in sent for key in each.lines if key not in own.lines))
    if lines or undelivered:
        items = (item for each in _messages(sent) for item in each.items if item in known.codes)
        absent = {key: reason for each in (*undelivered, own) for key, reason in each.not_performed.items()}
        message = replace(
            message,
            lines=(*own.lines, *lines),
            items=tuple(dict.fromkeys((*items, *message.items))),
            completes=tuple(dict.fromkeys(key for each in (*undelivered, own) for key in each.completes)),
            not_performed=tuple(NotPerformed(line=key, reason=reason) for key, reason in absent.items()),
        )
    return _with_values(sent, message)


def lost(older: ReportRecord, message: LabReport, lines: Collection[LineKey]) -> str:
    """What would not be heard of any more if `message`, about these lines, went and the older version did not; else empty."""
    before = load_kept(older.body)
    if not isinstance(before, LabReport):
        return ""
    found = []
    if values := [name for name in _final(before) if name not in _final(message)]:
        found.append(names(values))
    final, still = before.status is ReportStatus.FINAL, message.status is ReportStatus.FINAL
    if not only_refuses(before) and (gone := [key for key in older.lines if final and not (still and key in lines)]):
        found.append(f"the end of line {several(gone)}" if not still else f"line {several(gone)}")
    if final and before.documents and not message.documents:
        found.append("a document")
    said = {*map(_absent, message.not_performed), *message.lines, *message.items}
    if any(_absent(each) not in said for each in before.not_performed):
        found.append("what was not performed")
    return several(found)


def lost_to(older: ReportRecord, newer: ReportRecord) -> str:
    """As `lost`, to a version as it was matched."""
    message = load_kept(newer.body)
    return lost(older, message, newer.lines) if isinstance(message, LabReport) else ""


def has_content(report: LabReport) -> bool:
    """Whether a report has anything that an upload would tell the clinic."""
    return bool(report.observations or report.documents)


def names(given: Iterable[str]) -> str:
    """Names of observations in a sentence."""
    return several(map(quoted, given))


def _with_values(before: Iterable[ReportRecord], message: LabReport) -> LabReport:
    """Give the report with what it leaves out behind its own observations, where each keeps its name."""
    return replace(message, observations=(*message.observations, *left_out(before, message).values()))


def _absent(entry: NotPerformed) -> str:
    """What an entry names; nothing where it means all of its report."""
    return entry.line or entry.item or ""


def _final(message: LabReport) -> list[str]:
    return [name for name, one in _named(message).items() if one.status in _SETTLED]


def _messages(records: Iterable[ReportRecord]) -> list[LabReport]:
    return [report for each in records if isinstance(report := load_kept(each.body), LabReport)]


def _named(message: LabReport) -> dict[str, ReportedObservation]:
    return dict(zip(observation_ids(message), message.observations, strict=True))
