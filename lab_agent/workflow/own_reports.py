"""Which lines have a final report of ours on the service, whatever our database knows of it.

A Task that is completed and has such a report was completed by us. A database restored from a backup does not know that, nor does
the one of a second agent of the laboratory; both would tell the laboratory system that the line was withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lab_agent.domain.ids import ResourceId, WorkOrderKey
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

    async def find(self, parts: Iterable[WorkOrderKey]) -> tuple[Json, ...]:
        """Our reports about these parts of an order. Raises what the search raises."""
        searches = [order_identifier(self.order_system, part) for part in parts]
        return tuple([one.body for each in searches for one in await self.exchange.find("DiagnosticReport", each)])

    async def find_reported(self, parts: Iterable[WorkOrderKey]) -> Mapping[ResourceId, Json]:
        """The ProcedureRequests of these parts that have a final report of ours, each with one. Raises what the search raises."""
        return {request: report for report in await self.find(parts) for request in self._requests_of(report)}

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


def changed_at(resource: Json) -> datetime | None:
    """When a resource was changed last, by the service's clock; None where it does not show that."""
    meta = resource.get("meta")
    value = meta.get("lastUpdated") if isinstance(meta, Mapping) else None
    try:
        return datetime.fromisoformat(value).astimezone(UTC) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def last_change(resource: Json) -> str:
    """When a resource was changed last, by the service's clock, for people."""
    at = changed_at(resource)
    return "changed at a time that it does not show" if at is None else f"last changed at {at:%Y-%m-%d %H:%M:%S} UTC"
