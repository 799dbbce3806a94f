"""Which lines have a final report of ours on the service, whatever our database knows of it.

A Task that is completed and has such a report was completed by us. A database restored from a backup does not know that, nor does
the one of a second agent of the laboratory; both would tell the laboratory system that the line was withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lab_agent.exchange.service import Exchange, Json
from lab_agent.fhir.content_digest import split_digest
from lab_agent.fhir.elements import code_of, last_updated, objects_of, references_of, text_of
from lab_agent.fhir.references import id_readings, parse_reference
from lab_agent.fhir.report_builder import FINAL_STATUSES, order_identifier
from lab_agent.shared.errors import ForeignOrigin
from lab_agent.shared.ids import ResourceId, WorkOrderKey
from lab_agent.store.unit_of_work import Store, UnitOfWork


@dataclass(frozen=True, slots=True)
class OwnReports:
    """Finds our reports by the identifier of their order. `order_system` is `Settings.order_system`."""

    exchange: Exchange
    store: Store
    order_system: str
    base_url: str

    async def find(self, parts: Iterable[WorkOrderKey]) -> tuple[Json, ...]:
        """Our reports about these parts of an order. Raises what the search raises."""
        searches = [order_identifier(self.order_system, part) for part in parts]
        return tuple([one.body for each in searches for one in await self.exchange.find("DiagnosticReport", each)])

    async def find_reported(self, parts: Iterable[WorkOrderKey]) -> Mapping[ResourceId, Json]:
        """The ProcedureRequests of these parts that have a final report of ours, each with one. Raises what the search raises."""
        return self._by_request(await self.find(parts))

    async def find_unknown(self, parts: Iterable[WorkOrderKey]) -> tuple[Json, ...]:
        """Our reports about these parts that the database knows nothing of. Raises what the search raises."""
        reports = await self.find(parts)
        return await self.store.run_read_only(lambda uow: tuple(each for each in reports if is_unknown(uow, each)))

    async def find_reported_by_others(self, parts: Iterable[WorkOrderKey]) -> Mapping[ResourceId, Json]:
        """As `find_reported`, by the reports of `find_unknown` alone."""
        return self._by_request(await self.find_unknown(parts))

    def _by_request(self, reports: Iterable[Json]) -> Mapping[ResourceId, Json]:
        return {request: report for report in reports for request in self._requests_of(report)}

    def _requests_of(self, report: Json) -> Iterator[ResourceId]:
        if code_of(report.get("status")) not in FINAL_STATUSES:
            return
        for each in references_of(report.get("basedOn")):
            try:
                request = parse_reference(text_of(each.get("reference")), self.base_url)
            except ForeignOrigin:
                continue
            if request is not None:
                yield from map(ResourceId, id_readings(request.id))


def find_report(reported: Mapping[ResourceId, Json], request: ResourceId | None) -> Json | None:
    """The report about a ProcedureRequest, whichever of the two is percent-encoded; None if there is none."""
    readings = () if request is None else map(ResourceId, id_readings(request))
    return next((reported[each] for each in readings if each in reported), None)


def is_unknown(uow: UnitOfWork, report: Json) -> bool:
    """Whether a report of ours, as it is now, is not of this agent's sending: it was not even about to send it.

    One that it sent before it was final, and has not begun to send since, has become final by another one.
    """
    names, status = identifier_values(report), code_of(report.get("status"))
    known = uow.uploads.find(upload_names(names))
    if (sent := next((known[name] for name in names if name in known), None)) is None:
        return bool(names) and not known
    was = split_digest(sent.digest)
    return bool(was.content) and status in FINAL_STATUSES and was.status not in FINAL_STATUSES


def identifiers_of(body: Json) -> dict[tuple[str, str], Any]:
    """The identifiers of a resource by their systems and values."""
    listed = objects_of(body.get("identifier"))
    return {(str(text_of(each.get("system"))), str(text_of(each.get("value")))): each for each in listed}


def identifier_values(body: Json) -> frozenset[str]:
    """The values of the identifiers of a resource, whatever their systems."""
    return frozenset(value for _, value in identifiers_of(body))


def upload_names(identifiers: Iterable[str]) -> tuple[str, ...]:
    """The names under which resources with these identifiers are recorded: as they are on the service, and as they were sent."""
    return tuple(name for each in identifiers for name in (each, sending_key(each)))


def sending_key(identifier: str) -> str:
    """The key of the record of sending: no identifier of ours has a colon."""
    return f"sending:{identifier}"


def changed_at(resource: Json) -> datetime | None:
    """When a resource was changed last, by the service's clock; None where it does not show that."""
    value = last_updated(resource)
    try:
        return None if value is None else datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def last_change(resource: Json) -> str:
    """When a resource was changed last, by the service's clock, for people."""
    at = changed_at(resource)
    return "changed at a time that it does not show" if at is None else f"last changed at {at:%Y-%m-%d %H:%M:%S} UTC"
