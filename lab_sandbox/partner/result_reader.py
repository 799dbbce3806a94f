"""Reads Tasks, reports, values and documents (Daily flow, point 8), and compares observations with what the LIS reported.

`find_differences` compares the LIS's record of an observation (snake_case keys) with the Observation on the service (camelCase
keys). Everything that was reported must be there unchanged; there may be more. Documents are compared by the caller, who
downloads them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from lab_sandbox.partner.client import DownloadedDocument, PartnerClient
from lab_sandbox.partner.clinic import PlacedOrder, reference_id
from lab_sandbox.partner.errors import Json, PartnerError

T = TypeVar("T")

_VALUE_PREFIX = "value_"
_CONTENT_FIELDS = frozenset({"content", "file"})


class WaitTimeoutError(PartnerError):
    """A condition was not met in time; the text says what was seen last."""


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """The Tasks of an order: the order-level one, and those of the lines by ProcedureRequest id."""

    order: str
    lines: dict[str, str]
    reasons: dict[str, tuple[str, ...]]

    def has_ended(self) -> bool:
        """Whether every Task is completed or cancelled."""
        return not {self.order, *self.lines.values()} - {"completed", "cancelled"}

    def __str__(self) -> str:
        """The statuses without ids."""
        counted = Counter(self.lines.values())
        return f"order {self.order}; lines: {', '.join(f'{count} {status}' for status, count in counted.items())}"


@dataclass(frozen=True, slots=True, repr=False)
class ReceivedReport:
    """A DiagnosticReport with the Observations that it lists, in its order."""

    resource: Json
    observations: tuple[Json, ...]

    @property
    def status(self) -> str:
        """The status of the DiagnosticReport."""
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
    reference = client.account.reference("Task", order.order_task)
    top, tasks = await asyncio.gather(
        client.read(reference), client.search(client.account.type_name("Task"), {"part-of": reference})
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
        reference = client.account.reference("ProcedureRequest", line.procedure_request)
        reports = await client.search("DiagnosticReport", {"based-on": reference})
        found.update({one["id"]: one for one in reports})
    return [await _read_report(client, resource) for resource in found.values()]


async def download_documents(client: PartnerClient, report: ReceivedReport) -> list[DownloadedDocument]:
    """Downloads every document of the report."""
    return [await client.download_document(url) for url in report.documents]


async def wait_until(
    fetch: Callable[[], Awaitable[T]], is_done: Callable[[T], bool], *, timeout: float, description: str, interval: float = 0.25
) -> T:
    """Fetches until `is_done`; `WaitTimeoutError` after `timeout` seconds, with what was fetched last."""
    deadline = time.monotonic() + timeout
    while True:
        seen = await fetch()
        if is_done(seen):
            return seen
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"{description}: not within {timeout:.0f} s; last seen: {seen}")
        await asyncio.sleep(interval)


def find_differences(reported: Json, observation: Json) -> list[str]:
    """What is missing or different in the Observation; empty if all of the reported one has arrived."""
    found = [] if observation.get("status") == reported["status"] else [f"status: {observation.get('status')}"]
    found += _compare(reported["code"], _find_coding(observation, reported["code"]), "code")
    for name in reported:
        if name.startswith(_VALUE_PREFIX) or name == "method":
            found += _compare(reported[name], observation.get(_to_camel_case(name)), _to_camel_case(name))
    ranges = observation.get("referenceRange", [])
    for index, expected in enumerate(reported.get("reference_ranges", ())):
        found += _compare(expected, ranges[index] if index < len(ranges) else None, f"referenceRange[{index}]")
    return found


def value_fields(observation: Json) -> list[str]:
    """The value[x] fields of an Observation; there must be exactly one."""
    return [name for name in observation if re.match(r"value[A-Z]", name)]


async def _read_report(client: PartnerClient, resource: Json) -> ReceivedReport:
    references = [one["reference"] for one in resource.get("result", ())]
    return ReceivedReport(resource, tuple(await asyncio.gather(*(client.read(reference) for reference in references))))


def _error_texts(task: Json) -> tuple[str, ...]:
    return tuple(one["valueString"] for one in task.get("output", ()) if "valueString" in one)


def _find_coding(observation: Json, code: Json) -> Json | None:
    codings: list[Json] = observation.get("code", {}).get("coding", [])
    return next((one for one in codings if one.get("code") == code["code"]), None)


def _compare(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name, part in expected.items():
            if name in _CONTENT_FIELDS:
                continue
            yield from _compare(part, actual.get(_to_camel_case(name)), f"{path}.{_to_camel_case(name)}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) >= len(expected):
        for index, part in enumerate(expected):
            yield from _compare(part, actual[index], f"{path}[{index}]")
    elif not _is_equal(expected, actual):
        yield f"{path}: {actual!r} instead of {expected!r}"


def _is_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, str) and isinstance(actual, str):
        return expected == actual or _is_same_instant(expected, actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int | Decimal) and isinstance(actual, int | Decimal):
        return str(expected) == str(actual)
    return bool(expected == actual)


def _is_same_instant(expected: str, actual: str) -> bool:
    try:
        return datetime.fromisoformat(expected) == datetime.fromisoformat(actual)
    except (ValueError, TypeError):
        return False


def _to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
