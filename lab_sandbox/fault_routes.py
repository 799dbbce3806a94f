"""The admin endpoint for faults, only there when it is switched on: `GET`, `PUT` and `DELETE /sandbox/faults`."""

from fastapi import APIRouter, Request, Response

from lab_sandbox.exchange import json_answer, json_body
from lab_sandbox.faults.rule import FaultPlan, FaultPlanError, read_plan
from lab_sandbox.outcome import Refusal
from lab_sandbox.service import Service
from lab_sandbox.wire import decode_object


def fault_routes(service: Service) -> APIRouter:
    """Anybody who reaches the port may use these; that is why they are off by default."""
    router = APIRouter(prefix="/sandbox", tags=["faults"])

    @router.get("/faults", summary="The plan in force, and how often each fault happened")
    async def show() -> Response:
        return json_answer(service.faults.state())

    @router.put("/faults", summary="Put a plan in force, from its beginning")
    async def play(request: Request) -> Response:
        raw = decode_object(await json_body(request, service))
        try:
            service.faults.play(read_plan(raw, "body"))
        except FaultPlanError as exc:
            raise Refusal.of(400, "invalid", str(exc)) from exc
        return json_answer(service.faults.state())

    @router.delete("/faults", summary="No faults any more")
    async def stop() -> Response:
        service.faults.play(FaultPlan())
        return json_answer(service.faults.state())

    return router
