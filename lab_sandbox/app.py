"""The ASGI application: routes, error handlers and middleware around one service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from lab_sandbox.auth_routes import auth_routes
from lab_sandbox.basket_routes import basket_routes
from lab_sandbox.config import SandboxConfig
from lab_sandbox.error_handlers import ERROR_RESPONSES, add_error_handlers
from lab_sandbox.faults.admin import admin_routes
from lab_sandbox.faults.middleware import FaultMiddleware
from lab_sandbox.fhir_routes import fhir_routes
from lab_sandbox.middleware import FhirMediaTypeMiddleware, RequestLogMiddleware
from lab_sandbox.path_aliases import PathAliasMiddleware
from lab_sandbox.resources import Clock
from lab_sandbox.service import Service, build_service, utc_now


def create_app(config: SandboxConfig, *, clock: Clock = utc_now, transport: httpx.AsyncBaseTransport | None = None) -> FastAPI:
    """The exchange service as an ASGI application, for a server or for in-process tests.

    `transport` carries what goes to the addresses of the cards (default: the network). The service is at `app.state.service`.
    """
    resolved = config if config.listening else config.resolve_addresses()
    service = build_service(resolved, clock, transport)
    app = FastAPI(
        title="Laboratory order exchange service (sandbox)",
        version="1",
        lifespan=_lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for router in (auth_routes(service), basket_routes(service), fhir_routes(service)):
        app.include_router(router, responses=ERROR_RESPONSES)
    add_error_handlers(app)

    @app.get("/healthz", tags=["service"], summary="Health check, with the number of resources of each type")
    async def healthz() -> dict[str, dict[str, int]]:
        return {"resources": service.store.counts()}

    if resolved.fault_admin:
        app.include_router(admin_routes(service))
    if resolved.strict:
        app.add_middleware(FhirMediaTypeMiddleware)
    app.add_middleware(FaultMiddleware, service=service)
    if resolved.log_requests:
        app.add_middleware(RequestLogMiddleware)
    app.add_middleware(PathAliasMiddleware, addresses=(resolved.base_url, resolved.auth_url), strict=resolved.strict)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    yield
    await service.notifications.close()
    await service.basket_proxy.close()
    service.store.close()
