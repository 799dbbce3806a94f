"""The four basket endpoints, forwarded to the laboratory, and the partner's list of notifications."""

from fastapi import APIRouter, Request, Response

from lab_sandbox.exchange import caller_of, json_answer, json_body
from lab_sandbox.forward import Answer
from lab_sandbox.openapi_words import object_body
from lab_sandbox.outcome import Refusal
from lab_sandbox.service import Service
from lab_sandbox.wire import decode_object, decode_stored

MOST_NOTICES = 1000


def basket_routes(service: Service) -> APIRouter:
    """`/nomenclature`, `/eta`, `/questionnaire`, `/preanalytics` and `/notifications`."""
    router = APIRouter(tags=["basket"])

    @router.get("/nomenclature", summary="Nomenclature array")
    async def nomenclature(request: Request, contract: str = "") -> Response:
        answer = await service.forwarder.get("nomenclature", contract, caller_of(request, service), request.headers)
        if answer.status == 200:
            service.offers.learn(contract, answer.body)
        return _passed_on(answer)

    @router.get("/eta", summary="Turnaround array")
    async def eta(request: Request, contract: str = "") -> Response:
        return _passed_on(await service.forwarder.get("eta", contract, caller_of(request, service), request.headers))

    @router.post("/questionnaire", summary="Questionnaire for the whole basket", openapi_extra=object_body())
    async def questionnaire(request: Request) -> Response:
        caller = caller_of(request, service)
        basket = decode_object(await json_body(request, service))
        return _passed_on(await service.forwarder.post("questionnaire", basket, caller, request.headers))

    @router.post("/preanalytics", summary="Pre-analytics for the whole basket", openapi_extra=object_body())
    async def preanalytics(request: Request) -> Response:
        caller = caller_of(request, service)
        basket = decode_object(await json_body(request, service))
        return _passed_on(await service.forwarder.post("preanalytics", basket, caller, request.headers))

    @router.get("/notifications", summary="Task status changes of the caller's orders, oldest first")
    async def notifications(request: Request, since: str = "0") -> Response:
        caller = caller_of(request, service)
        if not since.isascii() or not since.isdigit() or len(since) > 15:
            raise Refusal.of(400, "invalid", f"since: the number of a notification is expected, came: {since}")
        found = service.shelf.notices(caller.guid, int(since), MOST_NOTICES)
        return json_answer({"notifications": [{"number": number, **decode_stored(body)} for number, body in found]})

    return router


def _passed_on(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers), "application/json")
