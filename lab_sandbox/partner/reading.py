"""What the partner reads when work is done: the Tasks' ends, the reports, their values and documents (Daily flow, point 8)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from lab_sandbox.partner.client import DownloadedDocument, PartnerClient
from lab_sandbox.partner.failures import PartnerError
from lab_sandbox.partner.placed import PlacedOrder, reference_id
from lab_sandbox.partner.plain_json import Json

T = TypeVar("T")


class WaitTimeoutError(PartnerError):
    """What was waited for did not come before the deadline; the text says what was there instead."""


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """The Tasks of an order: the order-level one, and those of the lines by ProcedureRequest id."""

    order: str
    lines: dict[str, str]
    reasons: dict[str, tuple[str, ...]]

    def has_ended(self) -> bool:
        """Whether every Task has come to its end."""
        return not {self.order, *self.lines.values()} - {"completed", "cancelled"}

    def __str__(self) -> str:
        """Give the statuses without ids."""
        counted = Counter(self.lines.values())
        return f"order {self.order}; lines: {', '.join(f'{count} {status}' for status, count in counted.items())}"


@dataclass(frozen=True, slots=True, repr=False)
class ReceivedReport:
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
        return frozenset(reference_id(one["reference"]) for one in self.resource.get("basedOn", ()))

    def __repr__(self) -> str:
        return f"<{self.status} report, {len(self.observations)} observations>"

    @property
    def documents(self) -> tuple[str, ...]:
        """The addresses of its documents, and of those that are values of its Observations."""
        attached = (one["valueAttachment"] for one in self.observations if "valueAttachment" in one)
        return tuple(form["url"] for form in (*self.resource.get("presentedForm", ()), *attached) if "url" in form)


async def read_order_status(client: PartnerClient, order: PlacedOrder) -> OrderStatus:
    """Reads the order-level Task and the Tasks that are part of it."""
    top, tasks = await asyncio.gather(
        client.read(f"task/{order.order_task}"), client.search("task", {"part-of": f"task/{order.order_task}"})
    )
    by_request = {reference_id(task["basedOn"][0]["reference"]): task for task in tasks}
    return OrderStatus(
        order=top["status"],
        lines={line.procedure_request: by_request[line.procedure_request]["status"] for line in order.lines},
        reasons={request: _error_texts(task) for request, task in by_request.items()},
    )


async def read_reports(client: PartnerClient, order: PlacedOrder) -> list[ReceivedReport]:
    """Every report that names a line of the order, each once."""
    found: dict[str, Json] = {}
    for line in order.lines:
        listed = await client.search("DiagnosticReport", {"based-on": f"procedurerequest/{line.procedure_request}"})
        found.update({one["id"]: one for one in listed})
    return [await _read_report(client, resource) for resource in found.values()]


async def download_documents(client: PartnerClient, report: ReceivedReport) -> list[DownloadedDocument]:
    """Downloads every document of the report."""
    return [await client.download_document(url) for url in report.documents]


async def wait_until(
    fetch: Callable[[], Awaitable[T]], is_done: Callable[[T], bool], *, timeout: float, description: str, interval: float = 0.25
) -> T:
    """Looks again and again until it holds; `NotInTimeError` after `within` seconds, with what was seen last."""
    deadline = time.monotonic() + timeout
    while True:
        seen = await fetch()
        if is_done(seen):
            return seen
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"{description}: not within {timeout:.0f} s; last seen: {seen}")
        await asyncio.sleep(interval)


async def _read_report(client: PartnerClient, resource: Json) -> ReceivedReport:
    listed = [one["reference"] for one in resource.get("result", ())]
    return ReceivedReport(resource, tuple(await asyncio.gather(*(client.read(reference) for reference in listed))))


def _error_texts(task: Json) -> tuple[str, ...]:
    return tuple(one["valueString"] for one in task.get("output", ()) if "valueString" in one)
