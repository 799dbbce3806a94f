"""The four basket endpoints, forwarded to the laboratory, and the partner's list of notifications."""

from fastapi import APIRouter, Request, Response

from lab_sandbox.basket_proxy import ProxiedResponse
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import decode_object, decode_stored
from lab_sandbox.http_helpers import authenticate_caller, json_response, read_json_body
from lab_sandbox.openapi_schemas import object_body
from lab_sandbox.service import Service

MAX_NOTIFICATIONS = 1000


def basket_routes(service: Service) -> APIRouter:
    """`/nomenclature`, `/eta`, `/questionnaire`, `/preanalytics` and `/notifications`."""
    router = APIRouter(tags=["basket"])

    @router.get("/nomenclature", summary="Nomenclature array")
    async def nomenclature(request: Request, contract: str = "") -> Response:
        proxied = await service.basket_proxy.get("nomenclature", contract, authenticate_caller(request, service), request.headers)
        if proxied.status == 200:
            service.nomenclature_cache.store(contract, proxied.body)
        return _to_response(proxied)

    @router.get("/eta", summary="Turnaround array")
    async def eta(request: Request, contract: str = "") -> Response:
        caller = authenticate_caller(request, service)
        return _to_response(await service.basket_proxy.get("eta", contract, caller, request.headers))

    @router.post("/questionnaire", summary="Questionnaire for the whole basket", openapi_extra=object_body())
    async def questionnaire(request: Request) -> Response:
        return await _forward_basket("questionnaire", request, service)

    @router.post("/preanalytics", summary="Pre-analytics for the whole basket", openapi_extra=object_body())
    async def preanalytics(request: Request) -> Response:
        return await _forward_basket("preanalytics", request, service)

    @router.get("/notifications", summary="Task status changes of the caller's orders, oldest first")
    async def notifications(request: Request, since: str = "0") -> Response:
        caller = authenticate_caller(request, service)
        if not since.isascii() or not since.isdigit() or len(since) > 15:
            raise HttpError.of(400, "invalid", f"since: must be the number of a notification, not {since}")
        found = service.store.notifications(caller.guid, int(since), MAX_NOTIFICATIONS)
        return json_response({"notifications": [{"number": number, **decode_stored(body)} for number, body in found]})

    return router


async def _forward_basket(name: str, request: Request, service: Service) -> Response:
    """Baskets have `Content-Type: application/json`, and nothing else ("Questionnaire request")."""
    caller = authenticate_caller(request, service)
    basket = decode_object(await read_json_body(request, service, frozenset({"application/json"})))
    return _to_response(await service.basket_proxy.post(name, basket, caller, request.headers))


def _to_response(proxied: ProxiedResponse) -> Response:
    return Response(proxied.body, proxied.status, dict(proxied.headers), "application/json")
