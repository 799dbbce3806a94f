"""What the partner reads when work is done: the Tasks' ends, the reports, their values and documents (Daily flow, point 8)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from lab_sandbox.partner.client import Document, PartnerClient
from lab_sandbox.partner.failures import PartnerError
from lab_sandbox.partner.placed import PlacedOrder, id_of
from lab_sandbox.partner.plain_json import Json

T = TypeVar("T")


class NotInTimeError(PartnerError):
    """What was waited for did not come before the deadline; the text says what was there instead."""


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """The Tasks of an order: the order-level one, and those of the lines by ProcedureRequest id."""

    order: str
    lines: dict[str, str]
    reasons: dict[str, tuple[str, ...]]

    def ended(self) -> bool:
        """Whether every Task has come to its end."""
        return not {self.order, *self.lines.values()} - {"completed", "cancelled"}

    def __str__(self) -> str:
        """Give the statuses without ids."""
        counted = Counter(self.lines.values())
        return f"order {self.order}; lines: {', '.join(f'{count} {status}' for status, count in counted.items())}"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """A DiagnosticReport with the Observations that it lists, in its order."""

    resource: Json
    observations: tuple[Json, ...]

    @property
    def status(self) -> str:
        """Its status."""
        return str(self.resource["status"])

    @property
    def lines(self) -> frozenset[str]:
        """Ids of the ProcedureRequests that it is based on."""
        return frozenset(id_of(one["reference"]) for one in self.resource.get("basedOn", ()))

    def __repr__(self) -> str:
        return f"<{self.status} report, {len(self.observations)} observations>"

    @property
    def documents(self) -> tuple[str, ...]:
        """The addresses of its documents, and of those that are values of its Observations."""
        attached = (one["valueAttachment"] for one in self.observations if "valueAttachment" in one)
        return tuple(form["url"] for form in (*self.resource.get("presentedForm", ()), *attached) if "url" in form)


async def order_status(client: PartnerClient, order: PlacedOrder) -> OrderStatus:
    """Reads the order-level Task and the Tasks that are part of it."""
    top, tasks = await asyncio.gather(
        client.read(f"task/{order.order_task}"), client.search("task", {"part-of": f"task/{order.order_task}"})
    )
    by_request = {id_of(task["basedOn"][0]["reference"]): task for task in tasks}
    return OrderStatus(
        order=top["status"],
        lines={line.procedure_request: by_request[line.procedure_request]["status"] for line in order.lines},
        reasons={request: _reasons(task) for request, task in by_request.items()},
    )


async def reports(client: PartnerClient, order: PlacedOrder) -> list[Report]:
    """Every report that names a line of the order, each once."""
    found: dict[str, Json] = {}
    for line in order.lines:
        listed = await client.search("DiagnosticReport", {"based-on": f"procedurerequest/{line.procedure_request}"})
        found.update({one["id"]: one for one in listed})
    return [await _whole(client, resource) for resource in found.values()]


async def documents(client: PartnerClient, report: Report) -> list[Document]:
    """Downloads every document of the report."""
    return [await client.document(url) for url in report.documents]


async def until(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], *, within: float, what: str, pause: float = 0.25
) -> T:
    """Looks again and again until it holds; `NotInTimeError` after `within` seconds, with what was seen last."""
    deadline = time.monotonic() + within
    while True:
        seen = await look()
        if holds(seen):
            return seen
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not within {within:.0f} s; last seen: {seen}")
        await asyncio.sleep(pause)


async def _whole(client: PartnerClient, resource: Json) -> Report:
    listed = [one["reference"] for one in resource.get("result", ())]
    return Report(resource, tuple(await asyncio.gather(*(client.read(reference) for reference in listed))))


def _reasons(task: Json) -> tuple[str, ...]:
    return tuple(one["valueString"] for one in task.get("output", ()) if "valueString" in one)
