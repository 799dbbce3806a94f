"""The application: routes, errors, health, and one log line for each request.

The routes are plain ones of Starlette, which FastAPI takes beside its own: a handler is given the request and returns what sends
the response. Bodies are read and written by the endpoints themselves, so that decimals keep their digits; FastAPI's solving of
dependencies and serialisation would be work without use for each request.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_agent.catalogue.labels import LabelSource, NoLabels
from lab_agent.settings.api import ApiSettings
from lab_agent.shared.logs import get_logger
from lab_agent.shared.web_server import NoSniffMiddleware
from lab_api import openapi
from lab_api.auth import Clients
from lab_api.endpoints import Endpoints
from lab_api.errors import EXCEPTION_HANDLERS
from lab_api.hosted_documents import HostedDocuments
from lab_api.metrics import ApiMetrics
from lab_api.observation import HealthEndpoints, Observation
from lab_api.rate_limit import TokenBuckets
from lab_api.response_cache import CurrentCatalogue
from lab_api.token_endpoint import TokenEndpoint

_log = get_logger(__name__)

_HEALTH_PATHS = ("/healthz", "/readyz", "/metrics")
"""The ends of paths that are asked again and again."""


class PlainRoute(Route):
    """A route of Starlette that says in the scope that it was taken, for the log: FastAPI says so for its own routes only."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette's."""
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


def create_app(
    settings: ApiSettings,
    current_catalogue: CurrentCatalogue,
    labels: LabelSource | None = None,
    clients: Clients | None = None,
    tokens: TokenEndpoint | None = None,
    documents: HostedDocuments | None = None,
    rate_limit: TokenBuckets | None = None,
    observation: Observation | None = None,
) -> FastAPI:
    """Make the application; the catalogue may be replaced while it runs.

    Without `clients` only those of the settings may call; with `tokens` clients may fetch short-lived ones.
    """
    prefix, observation = settings.prefix, observation or Observation()
    endpoints = Endpoints(
        settings=settings,
        current_catalogue=current_catalogue,
        clients=clients or Clients(settings.tokens, settings.basic),
        labels=labels or NoLabels(),
        rate_limit=rate_limit or TokenBuckets(settings.rate, settings.burst),
    )
    health = HealthEndpoints(current_catalogue, observation)
    routes: list[BaseRoute] = [
        *_endpoint_routes(prefix, endpoints),
        *_health_routes(prefix, health),
    ]
    if tokens:
        routes.append(PlainRoute(f"{prefix}/token", tokens.handle, methods=["POST"], name="token"))
    if documents:
        routes.append(PlainRoute(f"{prefix}/documents/{{address}}", documents.get_document, methods=["GET"], name="document"))
    app = FastAPI(
        title=openapi.TITLE,
        routes=routes,
        exception_handlers=EXCEPTION_HANDLERS,
        middleware=[Middleware(NoSniffMiddleware), Middleware(RequestLogMiddleware, metrics=observation.metrics)],
        openapi_url=f"{prefix}/openapi.json" if settings.docs else None,
        docs_url=f"{prefix}/docs" if settings.docs else None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.observation = observation
    token_path = f"{prefix}/token" if tokens else None
    app.openapi = cache(lambda: openapi.build_document(prefix, token_path))  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _endpoint_routes(prefix: str, endpoints: Endpoints) -> list[BaseRoute]:
    """Starlette answers HEAD wherever it answers GET, and 405 for other methods."""
    return [
        PlainRoute(f"{prefix}/nomenclature", endpoints.nomenclature, methods=["GET"]),
        PlainRoute(f"{prefix}/eta", endpoints.eta, methods=["GET"]),
        PlainRoute(f"{prefix}/questionnaire", endpoints.questionnaire, methods=["POST"]),
        PlainRoute(f"{prefix}/preanalytics", endpoints.preanalytics, methods=["POST"]),
    ]


def _health_routes(prefix: str, health: HealthEndpoints) -> list[BaseRoute]:
    """`/healthz` is under the prefix, too: a proxy need not pass on more, and our agent looks from outside whether it does."""
    return [
        *(PlainRoute(path, health.healthz, methods=["GET"]) for path in sorted({"/healthz", f"{prefix}/healthz"})),
        PlainRoute("/readyz", health.readyz, methods=["GET"]),
        PlainRoute("/metrics", health.render_metrics, methods=["GET"]),
    ]


class RequestLogMiddleware:
    """One line and one count for each request: route, status, time and client; never a query string or a body."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            path = getattr(scope.get("route"), "path", "unknown")
            elapsed, source = round(perf_counter() - started, 4), scope.get("state", {}).get("client")
            self._metrics.record_request(getattr(scope.get("route"), "name", ""), status, elapsed)
            log = _log.debug if path.endswith(_HEALTH_PATHS) else _log.info
            log("request", action="api.request", method=scope["method"], path=path, status=status, elapsed=elapsed, source=source)
