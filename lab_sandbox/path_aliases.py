"""The names of the interface (resource types, operations), and one canonical path for all spellings of a path.

The endpoint table writes `fhir/task`, `fhir/Patient`, and some rows without `fhir/`. The sandbox serves all of them, in any
case and with the prefix of its base address.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

RESOURCE_TYPES: Final = (
    "Patient",
    "ProcedureRequest",
    "Task",
    "Specimen",
    "QuestionnaireResponse",
    "DiagnosticReport",
    "Observation",
    "Binary",
    "Contract",
)
ORDER_TYPES: Final = frozenset({"ProcedureRequest", "Task", "Specimen", "QuestionnaireResponse"})
CREATED_BY_POST: Final = {
    "Patient": "partner",
    "Observation": "laboratory",
    "DiagnosticReport": "laboratory",
    "Binary": "laboratory",
}
"""What is created alone, and the kind of counterparty that creates it ("What the service does", points 3 and 4)."""

CREATE_ORDER: Final = "$CreateDiagnosticRequest"
META_ADD: Final = "$meta-add"
OPERATIONS: Final = {CREATE_ORDER.lower(): CREATE_ORDER, META_ADD: META_ADD}

ORDER_TASK_CODE: Final = "OrderProcessingTask"

_TYPE_BY_LOWER_CASE: Final = {name.lower(): name for name in RESOURCE_TYPES}


def canonical_type(name: str) -> str | None:
    """`task`, `TASK` -> `Task`; None for an unknown resource type."""
    return _TYPE_BY_LOWER_CASE.get(name.lower())


NON_FHIR_SEGMENTS = frozenset(
    {"nomenclature", "eta", "questionnaire", "preanalytics", "connect", "notifications", "sandbox", "healthz"}
)


def canonical_path(path: str, prefixes: Iterable[str]) -> str:
    """`/fhir/task/1`, `/Task/1`, `/api/fhir/TASK/1` (prefix `/api`) -> `/fhir/Task/1`; other paths as they are."""
    segments = [segment for segment in _without_prefix(path, prefixes).split("/") if segment]
    if not segments:
        return "/"
    first = segments[0].lower()
    if first in NON_FHIR_SEGMENTS:
        return "/" + "/".join([first, *segments[1:]])
    rest = segments[1:] if first == "fhir" else segments
    if rest and (first == "fhir" or canonical_type(rest[0]) or rest[0].startswith("$")):
        return "/fhir/" + "/".join([_canonical_name(rest[0]), *rest[1:]])
    return "/" + "/".join(segments)


def _canonical_name(segment: str) -> str:
    return canonical_type(segment) or OPERATIONS.get(segment.lower()) or segment


def _without_prefix(path: str, prefixes: Iterable[str]) -> str:
    for prefix in sorted((one.rstrip("/") for one in prefixes), key=len, reverse=True):
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            return path[len(prefix) :] or "/"
    return path


class PathAliasMiddleware:
    """Rewrites the path before routing; the original stays in `scope["raw_path"]`.

    A strict service knows no aliases: type names in their case, below `fhir/`.
    """

    def __init__(self, app: ASGIApp, addresses: Iterable[str], *, strict: bool = False) -> None:
        self._app = app
        self._canonical = _without_prefix if strict else canonical_path
        self._prefixes = tuple(urlsplit(address).path for address in addresses)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on under its canonical path."""
        if scope["type"] == "http":
            scope = {**scope, "path": self._canonical(scope["path"], self._prefixes)}
        await self._app(scope, receive, send)
