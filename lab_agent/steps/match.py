"""Collection, second half: find the order and the lines of a report; what fits nothing is held in sight (law 11).

What is matched here can be delivered: codes are mapped, documents are what they say, and every value has a legal form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent import exact_json
from lab_agent.codec import load_message
from lab_agent.domain import effects
from lab_agent.domain.coverage import Coverage, cover
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import ENDED_LINES, LineState, OrderState, ReportState
from lab_agent.domain.results import LabMessage, LabReceipt, LabRefusal, LabReport, ReportStatus
from lab_agent.domain.versions import is_older
from lab_agent.errors import DataInvalidError
from lab_agent.ports.clock import Clock
from lab_agent.ports.documents import Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.endings import cancel_lines
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.steps.planning import Planning, documents_of
from lab_agent.steps.receipts import UnknownNumber, receive_later

log = structlog.get_logger(__name__)

_GONE = frozenset({LineState.REFUSED, LineState.WITHDRAWN, LineState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Matcher:
    """Matches one report within a unit of work; nothing outside is touched."""

    planning: Planning
    documents: Documents

    def match(self, uow: UnitOfWork, key: ReportKey, now: datetime, *, waive: bool = False) -> ReportRecord:
        """Match one report, write what follows, and give it as it stands then. Also called when a person asks for it again.

        `waive`: a person has looked, and a report for an order that has ended, or with an odd document, is to go out. What has
        no legal form on the wire is held all the same.
        """
        report = uow.reports.take(key)
        message = load_message(report.body)
        named, problem = _order_named(uow, message)
        if named is None:
            return _hold(uow, report, ReportState.UNMATCHED, now, problem)
        order = uow.orders.take(named)
        lines = uow.orders.lines(order.key)
        report = replace(report, order=order.key)
        if isinstance(message, LabReceipt):
            return self._numbered(uow, report, order, message, now)
        coverage = cover(message, lines, codes_of(order))
        if coverage.problem:
            return _hold(uow, report, ReportState.UNMATCHED, now, coverage.problem)
        report = replace(report, lines=coverage.lines)
        if isinstance(message, LabRefusal):
            return _refused(uow, report, message, coverage, now)
        return self._reported(uow, Found(report, message, order, lines, coverage), now, waive=waive)

    def _numbered(
        self, uow: UnitOfWork, report: ReportRecord, order: OrderRecord, receipt: LabReceipt, now: datetime
    ) -> ReportRecord:
        """Write the laboratory's numbers, then match what came before them and names the order by one of them."""
        numbered = _numbered(uow, report, order, receipt, now)
        if numbered.state is ReportState.DELIVERED:
            numbers = {receipt.accession, *(each.number for each in receipt.accessions)} - {None}
            for early in [each for each in uow.reports.waiting() if each.state is ReportState.UNMATCHED]:
                if _accession(early) in numbers:
                    self.match(uow, early.key, now)
        return numbered

    def _reported(self, uow: UnitOfWork, found: Found, now: datetime, *, waive: bool) -> ReportRecord:
        report, message, coverage = found.report, found.message, found.coverage
        versions = [other for other in uow.reports.versions(found.order.key, message.report_id) if other.key != report.key]
        sent = [other for other in versions if other.state in {ReportState.MATCHED, ReportState.DELIVERED}]
        if any(is_older(report, other) for other in sent):
            reason = "a newer version of this report came before it"
            return _save(uow, report.become(ReportState.SUPERSEDED, now, reason), now, reason)
        late = None if sent or waive else _too_late(found)
        if late:
            return _hold(uow, report, ReportState.HELD, now, late)
        if unmapped := self.planning.unmapped(message):
            return _hold(uow, report, ReportState.UNMAPPED, now, unmapped)
        if wrong := self._cannot_go(uow, found, waive=waive):
            return _hold(uow, report, ReportState.HELD, now, wrong)
        for line in found.lines:
            if line.key in coverage.completes and line.state is LineState.ACCEPTED and message.status is ReportStatus.FINAL:
                uow.orders.save_line(line.become(LineState.RESULTED, now))
        deliver(uow, report.key, found.order.key, now)
        matched = f"{message.status.value} report {message.report_id} matched"
        return _save(uow, report.become(ReportState.MATCHED, now), now, matched)

    def _cannot_go(self, uow: UnitOfWork, found: Found, *, waive: bool) -> str | None:
        """What is wrong with the documents, or with a value: tried out here, so that delivery meets no surprise half-way."""
        if not waive and (odd := next(self._odd_documents(uow, found.message), None)):
            return odd
        try:
            self.planning.plan(found.message, found.order, found.lines, found.coverage, reader="anybody", urls={})
        except DataInvalidError as exc:
            return "; ".join(str(problem) for problem in exc.problems)
        return None

    def _odd_documents(self, uow: UnitOfWork, message: LabReport) -> Iterator[str]:
        for number, document in enumerate(documents_of(message), 1):
            if document.file is not None:
                kept = uow.vault.document(document.file)
                wrong = self.documents.wrong(kept[0], document.content_type) if kept else "is not kept any more; send it again"
            else:
                wrong = None if _leads_somewhere(document.url or "") else "is at no address that a clinic could open"
            if wrong:
                yield f"document {number} {wrong}"


@dataclass(frozen=True, slots=True)
class Found:
    """A report with the order and the lines that it is about."""

    report: ReportRecord
    message: LabReport
    order: OrderRecord
    lines: tuple[LineRecord, ...]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class Match:
    """Matches reports to orders. All of it is one unit of work: nothing outside is touched."""

    clock: Clock
    matcher: Matcher

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.MATCH})

    async def do(self, claim: Claim) -> Conclusion:  # noqa: ARG002 - everything needed is in the store
        """Match it in the concluding unit of work."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            key = ReportKey(effect.subject)
            if uow.reports.take(key).state is not ReportState.RECEIVED:
                return effect.done(now, "a person has decided already")
            report = self.matcher.match(uow, key, now)
            log.info("report matched", action="report_matched", order=report.order, state=report.state.value)
            return effect.done(now, report.reason)

        return write

    look = do


def deliver(uow: UnitOfWork, report: ReportKey, order: OrderKey, now: datetime) -> None:
    """Write the duty to deliver a report; once more, under a name of its own, where an earlier one has ended without effect."""
    duty = effects.deliver(report, order, now)
    if not uow.effects.add(duty):
        waiting = [each for each in uow.effects.of_order(order) if each.kind is EffectKind.DELIVER and each.subject == report]
        if not waiting:
            uow.effects.add(replace(duty, once=f"{duty.once}:{now.isoformat()}"))


def _too_late(found: Found) -> str | None:
    """Why a report that is heard of for the first time is no longer expected; None where it is."""
    if found.order.state in {OrderState.WITHDRAWN, OrderState.REFUSED}:
        return f"the order is {found.order.state.value}, and this is the first that is heard of this report"
    ended = {line.key: line.state for line in found.lines}
    said = found.message.observations or found.message.documents
    if said and all(ended[key] in _GONE for key in found.coverage.lines):
        return "every line that it is about has ended as cancelled, and this is the first that is heard of this report"
    return None


def _accession(report: ReportRecord) -> str | None:
    message = load_message(report.body)
    return None if isinstance(message, LabReceipt) else message.accession


def _numbered(uow: UnitOfWork, report: ReportRecord, order: OrderRecord, receipt: LabReceipt, now: datetime) -> ReportRecord:
    """Write the laboratory's own numbers; nothing of it goes to the service."""
    try:
        receive_later(uow, order, receipt)
    except UnknownNumber as unknown:
        return _hold(uow, report, ReportState.UNMATCHED, now, str(unknown))
    done = report.become(ReportState.MATCHED, now).become(ReportState.DELIVERED, now)
    return _save(uow, done, now, "the laboratory gave its own numbers")


def _refused(uow: UnitOfWork, report: ReportRecord, message: LabRefusal, coverage: Coverage, now: datetime) -> ReportRecord:
    order = OrderKey(report.order or "")
    done = [line.key for line in uow.orders.lines(order) if line.key in coverage.not_performed and line.state in ENDED_LINES]
    late = [line.key for line in uow.orders.lines(order) if line.key in done and line.state is LineState.COMPLETED]
    if late and len(done) == len(coverage.not_performed):
        reason = f"refuses {', '.join(late)}, which has a final result already; tell the clinic, or send a corrected report"
        return _hold(uow, report, ReportState.HELD, now, reason)
    again = " — please collect again" if message.collect_again else ""
    cancel_lines(uow, order, {line: reason + again for line, reason in coverage.not_performed.items()}, now)
    report = report.become(ReportState.MATCHED, now).become(ReportState.DELIVERED, now)
    follow(uow, order, now)
    return _save(uow, report, now, "the laboratory system refused " + ", ".join(coverage.not_performed))


def _order_named(uow: UnitOfWork, message: LabMessage) -> tuple[OrderKey | None, str]:
    """The one order that a message names, or why there is none.

    Our keys must be known. Of accession and barcode one may be new to us; but whatever is known must agree: a result that
    belongs to two orders belongs to a person's eyes first.
    """
    named = dict(_names(uow, message))
    unknown = [name for name, found in named.items() if not found]
    if any(name.startswith(("order", "line")) for name in unknown) or not any(named.values()):
        return None, f"{', '.join(unknown) or 'no name'}: no order here is known by it"
    sets = [set(found) for found in named.values() if found]
    common = set.intersection(*sets)
    if not common:
        return None, f"{', '.join(named)}: they name different orders"
    if len(common) == 1:
        return common.pop(), ""
    if message.barcode and len(named) == 1:
        return uow.orders.by_barcode(message.barcode)[0], ""  # tubes are labelled anew after years: the newest order is meant
    return None, f"{', '.join(named)}: {len(common)} orders are known by it"


def _names(uow: UnitOfWork, message: LabMessage) -> Iterator[tuple[str, tuple[OrderKey, ...]]]:
    if message.order:
        key = OrderKey(message.order)
        yield f"order {key}", (key,) if uow.orders.lines(key) else ()
    reasons = message.not_performed if isinstance(message, LabRefusal) and not message.order else ()
    lines = message.lines if isinstance(message, LabReport) else tuple(one.line for one in reasons if one.line)
    if lines and not message.order:
        for name in lines:
            line = uow.orders.line(LineKey(name))
            yield f"line {name}", (line.order,) if line else ()
    if message.accession and not isinstance(message, LabReceipt):
        yield f"accession {message.accession}", uow.orders.by_accession(message.accession)
    if message.barcode:
        yield f"barcode {message.barcode}", uow.orders.by_barcode(message.barcode)


def codes_of(order: OrderRecord) -> dict[str, list[LineKey]]:
    """Nomenclature and laboratory codes of the lines that went to the laboratory."""
    codes: dict[str, list[LineKey]] = {}
    for line in exact_json.loads(order.lab_order)["lines"] if order.lab_order else ():
        for code in {line["item"], line.get("lab_code")} - {None}:
            codes.setdefault(code, []).append(LineKey(line["key"]))
    return codes


def _leads_somewhere(url: str) -> bool:
    return url.startswith(("https://", "http://")) or (bool(url) and ":" not in url.partition("/")[0] and " " not in url)


def _hold(uow: UnitOfWork, report: ReportRecord, state: ReportState, now: datetime, reason: str) -> ReportRecord:
    held = report.become(state, now, reason)
    uow.reports.save(held)
    if held.order is not None:
        uow.book.tell(Event(order=held.order, at=now, action="result_held", text=f"result {held.key} is {state.value}: {reason}"))
    return held


def _save(uow: UnitOfWork, report: ReportRecord, now: datetime, text: str) -> ReportRecord:
    uow.reports.save(report)
    if report.order is not None:
        uow.book.tell(Event(order=report.order, at=now, action="result", text=text))
    return report
