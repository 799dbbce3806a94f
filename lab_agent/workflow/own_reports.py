"""Which lines have a final report of ours on the service, whatever our database knows of it.

A Task that is completed and has such a report was completed by us. A database restored from a backup does not know that, and
would tell the laboratory system that the line was withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lab_agent.domain.ids import ResourceId
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.errors import ForeignOrigin
from lab_agent.fhir.elements import code_of, references_of, text_of
from lab_agent.fhir.references import parse_reference
from lab_agent.fhir.report_builder import FINAL_STATUSES, order_identifier
from lab_agent.ports.exchange import Exchange, Json


@dataclass(frozen=True, slots=True)
class OwnReports:
    """Finds our reports by the identifier of their order. `order_system` is `Settings.order_system`."""

    exchange: Exchange
    order_system: str
    base_url: str

    async def find_reported(self, parts: Iterable[WorkOrder]) -> frozenset[ResourceId]:
        """The ProcedureRequests of these parts of an order that have a final report of ours. Raises what the search raises."""
        found: set[ResourceId] = set()
        for part in parts:
            reports = await self.exchange.find("DiagnosticReport", order_identifier(self.order_system, part.key))
            found |= {each for report in reports for each in self._requests_of(report.body)}
        return frozenset(found)

    def _requests_of(self, report: Json) -> Iterator[ResourceId]:
        if code_of(report.get("status")) not in FINAL_STATUSES:
            return
        for each in references_of(report.get("basedOn")):
            try:
                request = parse_reference(text_of(each.get("reference")), self.base_url)
            except ForeignOrigin:
                continue
            if request is not None:
                yield ResourceId(request.id)
