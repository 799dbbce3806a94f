"""Why a report waits: one table of sentences and next steps for people, made from the reason by which the program decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.shared.state_machines import ReportState
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

_SENTENCES: Mapping[HoldReason, str] = {
    HoldReason.UNEXPECTED: "{detail}, and this is the first message of this report; released, it is delivered and moves no Task",
    HoldReason.QUESTION: "{detail}",
    HoldReason.DOCUMENT_MISMATCH: "{detail}; released, it is sent as what its content is",
    HoldReason.LINE_HAS_RESULT: "rejects {detail}",
    HoldReason.LINES_ENDED: "{detail} while this report was on its way; released, it is delivered and moves no Task",
    HoldReason.DEFECT: "{detail} — it cannot be sent in this form",
    HoldReason.WAITS_FOR_VERSION: "waits for result {detail}, another version of this report, and follows once that is settled",
    HoldReason.PATIENT_MISMATCH: "names another patient than the order ({detail}); released, it counts for this one",
    HoldReason.CONFLICTING_VERSION: (
        "differs from the version that was delivered in {detail}, and its time or number contradicts its order of arrival: which "
        "of the two is right? Released, this one is delivered after the other"
    ),
    HoldReason.SUPERSEDED_BY_NEWER: (
        "a newer version of this report was delivered without {detail} — have the laboratory system send that again in a new "
        "version; released, this one is superseded"
    ),
}
"""`detail` names what the reason is about: fields, lines, values, or the key of another result."""

_ANSWER_QUESTION = "answer the question: release it if it is meant, or dismiss it with a note"
_HELD_NEXT_STEPS: Mapping[HoldReason, str] = {
    HoldReason.UNEXPECTED: _ANSWER_QUESTION,
    HoldReason.QUESTION: _ANSWER_QUESTION,
    HoldReason.DOCUMENT_MISMATCH: _ANSWER_QUESTION,
    HoldReason.LINE_HAS_RESULT: _ANSWER_QUESTION,
    HoldReason.LINES_ENDED: _ANSWER_QUESTION,
    HoldReason.DEFECT: (
        "have the laboratory system send it again without the error, or dismiss it with a note; a release does not send it"
    ),
    HoldReason.WAITS_FOR_VERSION: "decide about the result that it waits for; this one follows by itself",
    HoldReason.PATIENT_MISMATCH: (
        "compare the patient in the laboratory system with the order's: if it is another person, dismiss the result and have it "
        "sent under its own order; release it only if it is the same person"
    ),
    HoldReason.CONFLICTING_VERSION: (
        "look which version is right in the laboratory system: release this one if it is, or dismiss it with a note"
    ),
    HoldReason.SUPERSEDED_BY_NEWER: "have what it says sent again in a new version; or release this one, which supersedes it",
}
_NEXT_STEPS: Mapping[ReportState, str] = {
    ReportState.UNMATCHED: "match: say which order it belongs to; or dismiss it with a note",
    ReportState.UNMAPPED: "add the missing rows to the mapping tables, then `lab-agent mappings release`; or dismiss it",
}


@dataclass(frozen=True, slots=True)
class Hold:
    """That a report waits: the state that it goes to, the sentence for people, and the reason if the state is held."""

    state: ReportState
    text: str
    reason: HoldReason | None = None


def held(reason: HoldReason, detail: str) -> Hold:
    """Hold a report for this reason; the sentence is made from the detail."""
    return Hold(ReportState.HELD, _SENTENCES[reason].format(detail=detail), reason)


def unmatched(text: str) -> Hold:
    """Hold a report that fits no order, or no line of its order."""
    return Hold(ReportState.UNMATCHED, text)


def unmapped(text: str) -> Hold:
    """Hold a report for which the mapping tables lack a row."""
    return Hold(ReportState.UNMAPPED, text)


def hold_report(uow: UnitOfWork, report: ReportRecord, hold: Hold, now: datetime) -> ReportRecord:
    """Write that a report waits, and an event unless it waited for the same before."""
    after = report.transition_to(hold.state, now, hold.text, hold.reason)
    if (report.state, report.reason) == (after.state, after.reason):
        after = replace(after, changed_at=report.changed_at)
    else:
        text = f"result {report.key} is {hold.state.value}: {hold.text}"
        uow.events.add(Event(order=report.order, report=report.key, at=now, action="result_held", text=text))
    uow.reports.save(after)
    return after


def what_to_do(state: ReportState, hold_reason: HoldReason | None) -> str:
    """The next step for a report that waits; empty where nothing does."""
    return _NEXT_STEPS.get(state, "") if hold_reason is None else _HELD_NEXT_STEPS[hold_reason]
