"""The admin endpoints of tests: the fault plan, and edits of resources by others.

They need no sign-in, and are therefore disabled by default.
"""

from fastapi import APIRouter, Request, Response

from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import decode_object, decode_stored
from lab_sandbox.faults.plan import FaultPlan, FaultPlanError, parse_plan
from lab_sandbox.http_helpers import json_response, read_json_body, resource_response
from lab_sandbox.path_aliases import canonical_type
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.service import Service


def admin_routes(service: Service) -> APIRouter:
    """`/sandbox/faults` (GET, PUT, DELETE) and `/sandbox/resources/<Type>/<id>` (PATCH, DELETE)."""
    router = APIRouter(prefix="/sandbox", tags=["faults"])
    _add_fault_routes(router, service)
    _add_resource_routes(router, service)
    return router


def _add_fault_routes(router: APIRouter, service: Service) -> None:
    @router.get("/faults", summary="The active fault plan, and how often each fault fired")
    async def show_plan() -> Response:
        return json_response(service.faults.state())

    @router.put("/faults", summary="Activate a fault plan, from its beginning")
    async def put_plan(request: Request) -> Response:
        raw = decode_object(await read_json_body(request, service))
        try:
            service.faults.activate(parse_plan(raw, "body"))
        except FaultPlanError as exc:
            raise HttpError.of(400, "invalid", str(exc)) from exc
        return json_response(service.faults.state())

    @router.delete("/faults", summary="Deactivate all faults")
    async def delete_plan() -> Response:
        service.faults.activate(FaultPlan())
        return json_response(service.faults.state())


def _add_resource_routes(router: APIRouter, service: Service) -> None:
    @router.patch("/resources/{resource}/{id_}", summary="Set fields as the owner would, in a new version; null removes one")
    async def change(resource: str, id_: str, request: Request) -> Response:
        stored, fields = _stored(resource, id_, service), decode_object(await read_json_body(request, service))
        changed = {name: value for name, value in (decode_stored(stored.body) | fields).items() if value is not None}
        return resource_response(service.resources.replace(stored, changed))

    @router.delete("/resources/{resource}/{id_}", summary="Delete a resource: later reads are answered with 410", status_code=204)
    async def delete(resource: str, id_: str) -> Response:
        service.resources.delete(_stored(resource, id_, service))
        return Response(status_code=204)


def _stored(resource: str, id_: str, service: Service) -> StoredResource:
    stored = service.resources.find(Ref(canonical_type(resource) or resource, id_))
    if stored is None:
        raise HttpError.of(404, "not-found", f"{resource}/{id_}: does not exist")
    return stored
