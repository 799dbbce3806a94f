"""The records of reports and of what was uploaded of them. Frozen; a change makes a new value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId
from lab_agent.shared.state_machines import REPORT_TRANSITIONS, ReportState, transition


class HoldReason(StrEnum):
    """Why a report is held, by which code decides; `results.hold_reasons` makes the sentences."""

    UNEXPECTED = "unexpected"  # the first message of a report whose order or lines have ended
    QUESTION = "question"  # it is implausible, or leaves out or takes back what was final
    DOCUMENT_MISMATCH = "document_mismatch"  # a document is not of the type that it claims, or not whole
    LINE_HAS_RESULT = "line_has_result"  # it rejects a line that has a result
    LINES_ENDED = "lines_ended"  # its lines ended while it was on its way
    DEFECT = "defect"  # it has no legal form: no release can send it
    WAITS_FOR_VERSION = "waits_for_version"  # another version of the report goes first; it follows by itself
    PATIENT_MISMATCH = "patient_mismatch"  # it names another patient than its order
    CONFLICTING_VERSION = "conflicting_version"  # its time or number says that it is older than what arrived before it
    SUPERSEDED_BY_NEWER = "superseded_by_newer"  # what it says is missing in a newer version that was delivered


_RESULT_CONDITIONS = {
    ReportState.UNMATCHED: ConditionId.RESULTS_UNMATCHED,
    ReportState.UNMAPPED: ConditionId.RESULTS_UNMAPPED,
    ReportState.HELD: ConditionId.RESULTS_HELD,
}


def result_alert_key(state: ReportState, hold_reason: HoldReason | None) -> AlertKey:
    """The alert of all results that wait in this state, of held ones for this reason. Raises `KeyError` if it needs no one."""
    return AlertKey(_RESULT_CONDITIONS[state], hold_reason.value if hold_reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRecord:
    """One message of a LIS: one version of a report, or a rejection.

    `source` is the adapter and `message` its own stable name for the message; `body` the `LabMessage` as JSON, its documents
    moved to the vault, where their `file` names them. `outgoing_body` is that message as it goes out, where that differs: with
    what it keeps of the version before it (`results.left_out`). `sequence` is the order of arrival. `hold_reason` is set exactly
    while the state is held; `reason` is its sentence, for people. `patient_confirmed_for` is the order for whose patient an
    operator released it although it names another one. `matched_adapter` is set where an operator matched it to what another
    laboratory system was asked for; its `report_id` is one of `source` all the same.
    """

    key: ReportKey
    source: str
    message: str
    sequence: int = 0
    report_id: str | None = None
    version: int | None = None
    issued: datetime | None = None
    state: ReportState = ReportState.RECEIVED
    order: OrderKey | None = None
    patient_confirmed_for: OrderKey | None = None
    matched_adapter: str | None = None
    lines: tuple[LineKey, ...] = ()
    hold_reason: HoldReason | None = None
    reason: str | None = None
    received_at: datetime
    changed_at: datetime
    body: bytes
    outgoing_body: bytes | None = None

    @property
    def adapter(self) -> str:
        """The laboratory system of whose part of an order it speaks."""
        return self.matched_adapter or self.source

    def transition_to(
        self, state: ReportState, now: datetime, reason: str | None = None, hold_reason: HoldReason | None = None
    ) -> ReportRecord:
        """Move to `state`. Raises `InvalidTransitionError`, and `ValueError` for a held report without a hold reason."""
        if (state is ReportState.HELD) is (hold_reason is None):
            raise ValueError(f"a {state.value} report with hold reason {hold_reason}")
        after = transition(REPORT_TRANSITIONS, self.state, state)
        return replace(self, state=after, changed_at=now, reason=reason, hold_reason=hold_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRecord:
    """A resource that we created on the service: found by our `identifier`, updated by its `resource_id` and `version`."""

    identifier: str
    resource_type: str
    resource_id: ResourceId
    version: str
    digest: str
    order: OrderKey
    report: ReportKey


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedDocument:
    """A document that our own API serves under an unguessable `address`, until `expires_at` if there is an end."""

    address: str
    document: str
    content_type: str
    order: OrderKey
    kept_at: datetime
    expires_at: datetime | None = None
