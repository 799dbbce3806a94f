"""What machines are told of lab-api: `/healthz`, `/readyz` and `/metrics`, and what they are told by.

`/readyz` and `/metrics` are at the root of the port, outside the prefix that a proxy passes on, and without credentials, as those
of the agent. With an empty prefix a proxy may pass on everything: what came through one gets no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from lab_agent.shared import exact_json
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.metrics import CONTENT_TYPE
from lab_api.errors import ApiError
from lab_api.metrics import ApiMetrics
from lab_api.refusals import RefusalCounter
from lab_api.response_cache import CurrentCatalogue

_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers that only a proxy adds."""


def _nothing_wrong() -> Sequence[OpenCondition]:
    return ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What is counted, and what is known to be wrong with the database: `conditions` gives it without asking it."""

    metrics: ApiMetrics = field(default_factory=ApiMetrics)
    refusals: RefusalCounter | None = None
    conditions: Callable[[], Sequence[OpenCondition]] = _nothing_wrong


def render_health() -> Response:
    """The answer of a process that answers."""
    return Response(b'{"status":"ok","service":"lab-api"}', media_type="application/json")


def condition_to_json(found: OpenCondition) -> dict[str, object]:
    """What `/readyz` says of what is wrong."""
    return {
        "reason": found.condition.id.value,
        "title": found.title,
        "mend": found.mend,
        "since": found.since.isoformat(),
    }


@dataclass(frozen=True, slots=True)
class HealthEndpoints:
    """The handlers."""

    current_catalogue: CurrentCatalogue
    observation: Observation

    async def healthz(self, _: Request) -> Response:
        """Whether the process answers."""
        return render_health()

    async def readyz(self, _: Request) -> Response:
        """Whether it can do all of its work: 503 while its database cannot be read or written.

        What needs no database is served all the same, from the catalogue that is named here.
        """
        found = self.observation.conditions()
        served = self.current_catalogue
        body: dict[str, object] = {
            "status": "not ready" if found else "ready",
            "service": "lab-api",
            "catalogue": served.responses.catalogue.version,
            "served_since": served.since.isoformat(),
        }
        if found:
            body |= condition_to_json(found[0])
        return Response(exact_json.dumps(body), 503 if found else 200, media_type="application/json")

    async def render_metrics(self, request: Request) -> Response:
        """The numbers for Prometheus. Raises `ApiError` (404) for what came through a proxy."""
        if any(name in request.headers for name in _OF_PROXIES):
            raise ApiError(404, "not-found", "path: not found")
        served = self.current_catalogue
        self.observation.metrics.update(
            served.responses.catalogue.version, served.since, is_ready=not self.observation.conditions()
        )
        return Response(self.observation.metrics.render(), headers={"Content-Type": CONTENT_TYPE})
