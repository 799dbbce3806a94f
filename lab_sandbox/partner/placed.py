"""An order as the service keeps it: which server ids belong to which of our lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab_sandbox.partner.failures import PartnerError
from lab_sandbox.partner.plain_json import Json


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """One test: its nomenclature code, our own number of the line, and the ids of its ProcedureRequest and Task."""

    item: str
    number: str
    procedure_request: str
    task: str


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An accepted order: the requisition, the id of its order-level Task, its lines, the patient, the barcodes of its tubes."""

    requisition: str
    order_task: str
    lines: tuple[PlacedLine, ...]
    patient: str
    barcodes: tuple[str, ...]


def parse_placed_order(bundle: Json, labels_system: str) -> PlacedOrder:
    """Reads the service's answer; entries are told apart by what they are, not by their place in it."""
    resources = [entry["resource"] for entry in bundle.get("entry", ())]
    requests = {one["id"]: one for one in resources if one["resourceType"] == "ProcedureRequest"}
    tasks = [one for one in resources if one["resourceType"] == "Task"]
    order = [one["id"] for one in tasks if not one.get("partOf")]
    if len(order) != 1 or not requests:
        raise PartnerError(f"the created order has {len(order)} order-level Tasks and {len(requests)} ProcedureRequests")
    first = next(iter(requests.values()))
    return PlacedOrder(
        requisition=first["requisition"]["value"],
        order_task=order[0],
        lines=tuple(_placed_lines(tasks, requests)),
        patient=first["subject"].get("reference", ""),
        barcodes=tuple(_specimen_barcodes(resources, labels_system)),
    )


def reference_id(reference: str) -> str:
    """The id in a reference of any spelling, with or without a history suffix."""
    return reference.split("/_history/", maxsplit=1)[0].rstrip("/").rsplit("/", 1)[-1]


def _placed_lines(tasks: Iterable[Json], requests: dict[str, Json]) -> Iterable[PlacedLine]:
    for task in tasks:
        for based_on in task.get("basedOn", ()):
            request = requests[reference_id(based_on["reference"])]
            item, number = request["code"]["coding"][0]["code"], request["identifier"][0]["value"]
            yield PlacedLine(item, number, request["id"], task["id"])


def _specimen_barcodes(resources: Iterable[Json], labels_system: str) -> Iterable[str]:
    for one in resources:
        if one["resourceType"] == "Specimen":
            for container in one.get("container", ()):
                yield from (each["value"] for each in container["identifier"] if each["system"] == labels_system)
