"""The application: routes, errors, health, and one log line for each request."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_agent import exact_json
from lab_agent.catalogue.labels import LabelSource, NoLabels
from lab_agent.logs import get_logger
from lab_agent.settings.api import ApiSettings
from lab_api import endpoints, schemas
from lab_api.auth import Clients
from lab_api.endpoints import ApiContext, Responses
from lab_api.errors import add_error_handlers
from lab_api.hosted_documents import HostedDocuments
from lab_api.rate_limit import TokenBuckets
from lab_api.response_cache import CurrentCatalogue
from lab_api.token_endpoint import TokenEndpoint

health = APIRouter(include_in_schema=False)
_log = get_logger(__name__)

_HEALTH_PATHS = ("/healthz", "/readyz")


def create_app(
    settings: ApiSettings,
    current_catalogue: CurrentCatalogue,
    labels: LabelSource | None = None,
    clients: Clients | None = None,
    tokens: TokenEndpoint | None = None,
    documents: HostedDocuments | None = None,
    rate_limit: TokenBuckets | None = None,
) -> FastAPI:
    """Make the application; the catalogue may be replaced while it runs.

    Without `clients` only those of the settings may call; with `tokens` clients may fetch short-lived ones.
    """
    docs = settings.prefix + "/docs" if settings.docs else None
    schema = settings.prefix + "/openapi.json" if settings.docs else None
    app = FastAPI(title="Laboratory API", docs_url=docs, redoc_url=None, openapi_url=schema, redirect_slashes=False)
    app.state.api = ApiContext(
        settings=settings,
        current_catalogue=current_catalogue,
        clients=clients or Clients(settings.tokens, settings.basic),
        labels=labels or NoLabels(),
        rate_limit=rate_limit or TokenBuckets(settings.rate, settings.burst),
    )
    app.include_router(endpoints.router, prefix=settings.prefix)
    app.include_router(health)
    if tokens:
        app.add_api_route(f"{settings.prefix}/token", tokens.handle, methods=["POST"], include_in_schema=False)
    if documents:
        app.include_router(documents.routes(settings.prefix))
    add_error_handlers(app)
    app.add_middleware(RequestLogMiddleware)
    token_path = f"{settings.prefix}/token" if tokens else None
    app.openapi = lambda: _openapi_document(app, token_path)  # type: ignore[method-assign]  # FastAPI's own way to extend it
    return app


@health.api_route("/healthz", methods=["GET", "HEAD"])
async def healthz() -> Response:
    """Say that the program runs."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@health.api_route("/readyz", methods=["GET", "HEAD"])
async def readyz(responses: Responses) -> Response:
    """Say which catalogue is served."""
    body = exact_json.dumps({"status": "ready", "catalogue": responses.catalogue.version})
    return Response(body, media_type="application/json")


def _openapi_document(app: FastAPI, token_path: str | None) -> dict[str, Any]:
    document = get_openapi(title=app.title, version="1", routes=app.routes)
    return schemas.add_security(document, token_path)


class RequestLogMiddleware:
    """One line for each request: route, status, time and client; never a query string or a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
            log = _log.debug if path in _HEALTH_PATHS else _log.info
            log("request", action="api.request", method=scope["method"], path=path, status=status, elapsed=elapsed, source=source)
