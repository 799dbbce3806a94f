"""What would become of one part of a message: received, matched and planned as always, in a unit of work without a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabReport, ReportedObservation
from lab_agent.lis.laboratory_system import ParsedPart
from lab_agent.lis.serialization import load_stored_message
from lab_agent.results.code_translation import MissingKind, MissingMapping, missing_mappings, uncoded_units
from lab_agent.results.hold_reasons import Hold, unmatched, what_to_do
from lab_agent.results.mapping_tables import MappingTables
from lab_agent.results.order_lookup import OrderPart, load_part
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_coverage import determine_coverage, is_only_not_performed
from lab_agent.results.report_versions import VersionOrder
from lab_agent.results.result_checks import MatchedReport
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.results.result_versions import OtherVersions
from lab_agent.results.trial.stand_in import STAND_IN_ORDER, StandInRecords, address_to, stand_in_part
from lab_agent.settings.groups import ResultsSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.ids import LineKey, OrderKey, report_key
from lab_agent.shared.state_machines import REPORTS_NEEDING_OPERATOR, ReportState
from lab_agent.store.unit_of_work import Store, UnitOfWork

_UNSENDABLE = frozenset({MissingKind.CODE, MissingKind.LOINC})


class Fate(StrEnum):
    """What would become of a part."""

    DELIVERED = "delivered"
    REJECTS_LINES = "rejects_lines"
    NUMBERS = "numbers"
    RECEIVED_BEFORE = "received_before"
    IGNORED = "ignored"
    WAITS = "waits"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingObservation:
    """A value as reported, and the Observation as it would leave; `body` is None where its code has no LOINC code yet."""

    reported: ReportedObservation
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOutcome:
    """What would become of a part.

    `order` is the one that it would meet, None where none is known; `lines` those that it covers. `reason` says why it waits or
    is refused, `next_step` what to do then. `missing` is what the mapping tables lack; `unknown_items` are tests that it names
    and the order does not have. `not_sent` is what the clinic would not get of it, `uncoded_units` what it gets as a text.
    """

    part: ParsedPart
    fate: Fate
    content: LabMessage | None = None
    order: OrderKey | None = None
    lines: tuple[LineKey, ...] = ()
    reason: str = ""
    next_step: str = ""
    observations: tuple[OutgoingObservation, ...] = ()
    missing: tuple[MissingMapping, ...] = ()
    unknown_items: tuple[str, ...] = ()
    not_sent: tuple[str, ...] = ()
    uncoded_units: tuple[str, ...] = ()

    @property
    def is_delivered(self) -> bool:
        """Whether nothing is missing for it."""
        return self.fate not in {Fate.WAITS, Fate.REFUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Rehearses parts of messages of the laboratory system `source`.

    `store` is None where the installation's orders are not known: then every part meets a stand-in. `order`: every part is taken
    as if it named this order.
    """

    store: Store | None
    matcher: ReportMatcher
    clock: Clock
    source: str
    order: OrderKey | None = None

    async def rehearse(self, part: ParsedPart) -> PartOutcome:
        """Say what would become of a part; nothing is committed."""
        if part.content is None:
            return PartOutcome(part=part, fate=Fate.REFUSED if part.problem else Fate.IGNORED, reason=part.problem or "")
        content, store = part.content, self.store
        if store is None:
            return self._rehearse_on_stand_in(part, content)
        return await store.rehearse(lambda uow: self._rehearse(store, uow, part, content))

    async def known_barcodes(self, texts: Iterable[str | None]) -> frozenset[str]:
        """Those of the texts that are barcodes of an order."""
        listed = set(filter(None, texts))
        if self.store is None or not listed:
            return frozenset()
        return await self.store.transact(
            lambda uow: frozenset(text for text in listed if uow.orders.by_barcode(text, self.source))
        )

    def _rehearse(self, store: Store, uow: UnitOfWork, part: ParsedPart, content: LabMessage) -> PartOutcome:
        addressed = content if self.order is None else address_to(content, self.order)
        if uow.reports.find(self.source, part.message_id) is not None:
            return self._outcome_of(
                uow, part, uow.reports.get_for_update(report_key(self.source, part.message_id)), repeated=True
            )
        outcome = self._match(store, uow, part, addressed)
        if not isinstance(content, LabReport) or any(each.body for each in outcome.observations):
            return outcome
        values = self._rehearse_on_stand_in(part, content)  # the order is not known, or not its test: the values still are
        return replace(
            outcome,
            observations=values.observations,
            missing=values.missing,
            not_sent=values.not_sent,
            uncoded_units=values.uncoded_units,
        )

    def _rehearse_on_stand_in(self, part: ParsedPart, content: LabMessage) -> PartOutcome:
        if isinstance(content, AccessionUpdate):
            return PartOutcome(part=part, fate=Fate.NUMBERS, content=content)
        records = StandInRecords(address_to(replace(content, patient=None), STAND_IN_ORDER))
        order_part = stand_in_part(content, self.source, self.clock.now())
        hold = self._find_hold(order_part, records)
        outcome = PartOutcome(
            part=part,
            fate=Fate.WAITS
            if hold
            else _fate_of(content, has_effect=isinstance(content, LabReport) and not is_only_not_performed(content)),
            content=content,
            reason=hold.text if hold else "",
            next_step=what_to_do(hold.state, hold.reason) if hold else "",
        )
        message = records.message
        return self._with_values(outcome, message, order_part) if isinstance(message, LabReport) else outcome

    def _find_hold(self, order_part: OrderPart, records: StandInRecords) -> Hold | None:
        """Why a message about the stand-in waits; None if it does not."""
        message, now = records.message, self.clock.now()
        if isinstance(message, AccessionUpdate):
            return None
        coverage = determine_coverage(message, order_part.lines, order_part.codes)
        if coverage.problem:
            return unmatched(coverage.problem)
        if not isinstance(message, LabReport) or is_only_not_performed(message):
            return None
        record = ReportRecord(
            key=report_key(self.source, "trial"),
            source=self.source,
            message="trial",
            received_at=now,
            changed_at=now,
            body=b"",
        )
        report = MatchedReport(
            report=record,
            message=message,
            part=order_part,
            coverage=coverage,
            others=OtherVersions(VersionOrder.of([record]), None, None, (), (), {}),
            any_uploaded=False,
            released=False,
        )
        cleared = self.matcher.checks.check(records.unit_of_work, report, now)
        return cleared if isinstance(cleared, Hold) else None

    def _match(self, store: Store, uow: UnitOfWork, part: ParsedPart, content: LabMessage) -> PartOutcome:
        record = StoreInbox(store, self.clock, self.source).add_message(uow, part.message_id, content)
        if record is None:
            return PartOutcome(part=part, fate=Fate.RECEIVED_BEFORE, content=content)
        return self._outcome_of(uow, part, self.matcher.match(uow, record.key, self.clock.now()))

    def _outcome_of(self, uow: UnitOfWork, part: ParsedPart, record: ReportRecord, *, repeated: bool = False) -> PartOutcome:
        content = load_stored_message(record.outgoing_body or record.body)
        waits = record.state in REPORTS_NEEDING_OPERATOR
        outcome = PartOutcome(
            part=part,
            fate=Fate.WAITS
            if waits
            else Fate.RECEIVED_BEFORE
            if repeated
            else _fate_of(content, has_effect=record.state is not ReportState.DELIVERED),
            content=content,
            order=OrderKey(record.order) if record.order else None,
            lines=tuple(map(LineKey, record.lines)),
            reason=(record.reason or "") if waits else "",
            next_step=what_to_do(record.state, record.hold_reason) if waits else "",
        )
        order_part = load_part(uow, outcome.order, record.adapter) if outcome.order else None
        return self._with_values(outcome, content, order_part) if isinstance(content, LabReport) else outcome

    def _with_values(self, outcome: PartOutcome, report: LabReport, part: OrderPart | None) -> PartOutcome:
        """Add what each value becomes, and what is missing."""
        tables = self.matcher.checks.planner.tables
        outcome = replace(
            outcome,
            observations=tuple(OutgoingObservation(reported=each) for each in report.observations),
            missing=missing_mappings(report, tables),
        )
        if part is None:
            return outcome
        names = {*part.codes.codes, *(line.key for line in part.lines)}
        sendable = [each for each in report.observations if not _lacks_code(each, report, tables)]
        partial = replace(report, observations=tuple(sendable))
        coverage = determine_coverage(partial, part.lines, part.codes)
        bodies: Sequence[Mapping[str, Any]] = ()
        if coverage.problem is None:
            try:
                planner = self.matcher.checks.planner
                references = planner.reference_writer(part.order)
                plan = planner.plan(partial, part, coverage, reader="anybody", urls={}, references=references)
                bodies = [each.body for each in plan.observations]
            except DataInvalidError:
                bodies = ()  # the matcher has said why: the report is held for it
        observations = _pair(report.observations, sendable, bodies)
        return replace(
            outcome,
            observations=observations,
            unknown_items=tuple(item for item in report.items if item not in names),
            not_sent=tuple(_not_sent(report, observations, self.matcher.checks.planner.settings)),
            uncoded_units=uncoded_units(report, tables),
        )


def _fate_of(content: LabMessage, *, has_effect: bool) -> Fate:
    if isinstance(content, LabReport):
        is_report = has_effect or content.observations or content.documents
        return Fate.DELIVERED if is_report else Fate.REJECTS_LINES
    return Fate.NUMBERS if isinstance(content, AccessionUpdate) else Fate.REJECTS_LINES


def _lacks_code(observation: ReportedObservation, report: LabReport, tables: MappingTables) -> bool:
    alone = replace(report, observations=(observation,))
    return any(each.kind in _UNSENDABLE for each in missing_mappings(alone, tables))


def _not_sent(report: LabReport, observations: Iterable[OutgoingObservation], settings: ResultsSettings) -> Iterator[str]:
    """What the settings keep from the clinic, and by which of them."""
    for each in observations:
        code, body = each.reported.code.code, each.body
        if body is None:
            continue  # nothing of it is sent yet
        if each.reported.note and "comment" not in body:
            yield f"the comment of {code} (results.send_notes)"
        sent = {coding["code"] for coding in body.get("interpretation", {}).get("coding", ())}
        if flags := [flag for flag in each.reported.flags if flag not in sent]:
            yield f"{', '.join(flags)} of {code} (results.send_interpretation)"
    if report.documents and settings.documents == "none":
        yield f"{len(report.documents)} documents (results.documents)"


def _pair(
    reported: Sequence[ReportedObservation], sendable: Sequence[ReportedObservation], bodies: Sequence[Mapping[str, Any]]
) -> tuple[OutgoingObservation, ...]:
    by_identity = {id(one): body for one, body in zip(sendable, bodies, strict=False)}
    return tuple(OutgoingObservation(reported=each, body=by_identity.get(id(each))) for each in reported)
