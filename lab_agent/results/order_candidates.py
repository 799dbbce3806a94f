"""The orders that an accession number or a barcode names, compared with what a message is about; nothing is written or locked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabReport
from lab_agent.results.order_choice import Candidate, Misfit, choose_order
from lab_agent.results.order_lookup import LookupResult, OrderPart, read_part
from lab_agent.results.patient_check import load_ordered_patient, names_another_patient
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_coverage import Coverage, determine_coverage
from lab_agent.results.upload_planning import UploadPlanner
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.text import join_limited
from lab_agent.shared.values import Coding
from lab_agent.store.unit_of_work import UnitOfWork

_MAX_CANDIDATES = 20
"""Of more orders than these with one number, nobody finds the right one by comparing."""


@dataclass(frozen=True, slots=True)
class OrderCandidates:
    """Chooses the order that `message` means among those that it names."""

    uow: UnitOfWork
    report: ReportRecord
    message: LabMessage
    planner: UploadPlanner

    def choose(self, keys: Collection[OrderKey], said: str) -> LookupResult:
        """Give the one that fits; `said` is how the message names them, for the reason where none or several do."""
        if len(keys) > _MAX_CANDIDATES:
            return LookupResult(problem=f"{said}: {len(keys)} orders are known by it")
        content = self.message if isinstance(self.message, LabReport) else None
        chosen = choose_order([self._candidate(key, is_alone=len(keys) == 1) for key in keys], content, self._codes)
        if chosen.order is not None:
            return LookupResult(chosen.order)
        which = join_limited(_describe(key, chosen.misfits.get(key)) for key in keys)
        reason = "no order fits" if len(chosen.misfits) == len(keys) else "nothing says which order is meant"
        return LookupResult(problem=f"{said}: {reason}: {which}")

    @property
    def _codes(self) -> frozenset[str]:
        """The codes of the values, where the message does not say itself which tests it is about."""
        if not isinstance(self.message, LabReport) or self.message.lines or self.message.items:
            return frozenset()
        return frozenset().union(*(self._exchange_codes(one.code) for one in self.message.observations))

    def _exchange_codes(self, code: Coding) -> frozenset[str]:
        """The exchange's code of a laboratory code, with that itself; nothing where no table has it."""
        concept = self.planner.tables.code(code)
        return frozenset((code.code, *(one.code for one in concept.coding))) if concept else frozenset()

    def _candidate(self, key: OrderKey, *, is_alone: bool) -> Candidate:
        """Read an order. Whose it is, and what it had before, is asked only where there is another one to compare it with."""
        part = read_part(self.uow, key, self.report.adapter, source=self.report.source)
        coverage = self._coverage(part)
        return Candidate(
            order=key,
            coverage=coverage,
            states={line.key: line.state for line in part.lines},
            tests={LineKey(line["key"]): self._tests(line) for line in part.submitted["lines"] if line["key"] in coverage.lines},
            collected_at=min(_collection_times(part.submitted), default=None),
            patient=None if is_alone else load_ordered_patient(self.uow, key),
            is_another_patient=not is_alone and names_another_patient(self.uow, self.report, key, self.planner.settings),
            has_report=not is_alone and self._has_report(key),
        )

    def _coverage(self, part: OrderPart) -> Coverage:
        if not isinstance(self.message, AccessionUpdate):
            return determine_coverage(self.message, part.lines, part.codes)
        places = {*part.codes.codes, *part.codes.barcodes, *(line.key for line in part.lines)}
        named = [each.barcode or each.line or each.item or "" for each in self.message.accessions]
        strange = next((name for name in named if name not in places), None)
        return Coverage(lines=tuple(line.key for line in part.lines), problem=strange)

    def _tests(self, line: Mapping[str, Any]) -> frozenset[str]:
        """The codes under which results of a line are known to come; nothing where no table has its test."""
        systems = {one.code.system for one in self.message.observations} if isinstance(self.message, LabReport) else set()
        own = [code for code in (line["item"], line.get("lab_code")) if code]
        return frozenset().union(
            *(self._exchange_codes(Coding(system=system, code=code)) for code in own for system in {None, *systems})
        )

    def _has_report(self, key: OrderKey) -> bool:
        if not isinstance(self.message, LabReport):
            return False
        return bool(self.uow.reports.versions(key, self.report.source, self.message.report_id))


def _collection_times(submitted: Mapping[str, Any]) -> Iterable[datetime]:
    return (datetime.fromisoformat(each["collected_at"]) for each in submitted.get("specimens", ()) if each.get("collected_at"))


def _describe(key: OrderKey, misfit: Misfit | None) -> str:
    return f"{key} ({misfit.value})" if misfit else key
