"""The application: which handler answers which path."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lab_agent import exact_json
from lab_agent.catalogue.labels import LabelSource, NoLabels
from lab_agent.settings.api import ApiSettings
from lab_api import openapi
from lab_api.auth import Clients
from lab_api.endpoints import Endpoints
from lab_api.hosted_documents import HostedDocuments
from lab_api.rate_limit import TokenBuckets
from lab_api.response_cache import CurrentCatalogue
from lab_api.routing import Methods, Router
from lab_api.token_endpoint import TokenEndpoint


class Application:
    """The laboratory's API as an ASGI application; `openapi` gives its description."""

    def __init__(self, table: dict[str, Methods], prefix: str, token_path: str | None, *, docs: bool) -> None:
        self.openapi = cache(lambda: openapi.build_document(prefix, token_path))
        self._prefix = prefix
        if docs:
            table = {**table, f"{prefix}/openapi.json": {"GET": self._document}, f"{prefix}/docs": {"GET": self._docs_page}}
        self._router = Router(table)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._router(scope, receive, send)

    async def _document(self, request: Request) -> Response:  # noqa: ARG002 - the shape of a handler
        document: dict[str, Any] = self.openapi()
        return openapi.document_response(document)

    async def _docs_page(self, request: Request) -> Response:  # noqa: ARG002 - the shape of a handler
        return openapi.docs_page(self._prefix)


def create_app(
    settings: ApiSettings,
    current_catalogue: CurrentCatalogue,
    labels: LabelSource | None = None,
    clients: Clients | None = None,
    tokens: TokenEndpoint | None = None,
    documents: HostedDocuments | None = None,
    rate_limit: TokenBuckets | None = None,
) -> Application:
    """Make the application; the catalogue may be replaced while it runs.

    Without `clients` only those of the settings may call; with `tokens` clients may fetch short-lived ones.
    """
    endpoints = Endpoints(
        settings=settings,
        current_catalogue=current_catalogue,
        clients=clients or Clients(settings.tokens, settings.basic),
        labels=labels or NoLabels(),
        rate_limit=rate_limit or TokenBuckets(settings.rate, settings.burst),
    )
    prefix = settings.prefix
    table: dict[str, Methods] = {
        f"{prefix}/nomenclature": {"GET": endpoints.nomenclature},
        f"{prefix}/eta": {"GET": endpoints.eta},
        f"{prefix}/questionnaire": {"POST": endpoints.questionnaire},
        f"{prefix}/preanalytics": {"POST": endpoints.preanalytics},
        **_health_table(current_catalogue),
    }
    token_path = f"{prefix}/token" if tokens else None
    if tokens and token_path:
        table[token_path] = {"POST": tokens.handle}
    if documents:
        table[f"{prefix}/documents/{{address}}"] = {"GET": documents.get_document}
    return Application(table, prefix, token_path, docs=settings.docs)


def _health_table(current_catalogue: CurrentCatalogue) -> dict[str, Methods]:
    async def healthz(_: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readyz(_: Request) -> Response:
        body = exact_json.dumps({"status": "ready", "catalogue": current_catalogue.responses.catalogue.version})
        return Response(body, media_type="application/json")

    return {"/healthz": {"GET": healthz}, "/readyz": {"GET": readyz}}
