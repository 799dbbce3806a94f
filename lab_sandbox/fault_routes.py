"""The admin endpoint for faults, only there when it is switched on: `GET`, `PUT` and `DELETE /sandbox/faults`."""

from fastapi import APIRouter, Request, Response

from lab_sandbox.exchange import json_response, read_json_body
from lab_sandbox.faults.rule import FaultPlan, FaultPlanError, parse_plan
from lab_sandbox.outcome import HttpError
from lab_sandbox.service import Service
from lab_sandbox.wire import decode_object


def fault_routes(service: Service) -> APIRouter:
    """Anybody who reaches the port may use these; that is why they are off by default."""
    router = APIRouter(prefix="/sandbox", tags=["faults"])

    @router.get("/faults", summary="The plan in force, and how often each fault happened")
    async def show_plan() -> Response:
        return json_response(service.faults.state())

    @router.put("/faults", summary="Put a plan in force, from its beginning")
    async def put_plan(request: Request) -> Response:
        raw = decode_object(await read_json_body(request, service))
        try:
            service.faults.activate(parse_plan(raw, "body"))
        except FaultPlanError as exc:
            raise HttpError.of(400, "invalid", str(exc)) from exc
        return json_response(service.faults.state())

    @router.delete("/faults", summary="No faults any more")
    async def delete_plan() -> Response:
        service.faults.activate(FaultPlan())
        return json_response(service.faults.state())

    return router
