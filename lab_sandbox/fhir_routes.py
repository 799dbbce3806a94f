"""The FHIR part of the endpoint table. `path_aliases` has already brought all spellings of a path to one."""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from lab_sandbox import updates
from lab_sandbox.access_rights import parse_meta_add
from lab_sandbox.documents import build_binary
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import Json, decode_object, decode_stored
from lab_sandbox.http_helpers import (
    authenticate_caller,
    base_address,
    content_type,
    json_response,
    known_type,
    read_body,
    read_json_body,
    resource_response,
    resource_types,
)
from lab_sandbox.openapi_schemas import (
    IF_MATCH,
    IF_NONE_EXIST,
    IF_NONE_MATCH,
    ResourceName,
    any_resource_body,
    object_body,
)
from lab_sandbox.path_aliases import CREATE_ORDER, META_ADD
from lab_sandbox.references import Ref
from lab_sandbox.resource_responses import created_response, document_response, existing_response, written_response
from lab_sandbox.search import bundle_entries
from lab_sandbox.search_routes import add_search_routes
from lab_sandbox.service import Service

_READ_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The resource, or a document in the format that Accept selects.",
        "content": {"application/json": {}, "*/*": {}},
    },
    304: {"description": "The version in If-None-Match is the current one."},
}


_CREATE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "A new Patient, or the resource found by If-None-Exist.", "content": {"application/json": {}}},
    201: {"description": "A new resource of the laboratory, with ETag and Location.", "content": {"application/json": {}}},
}
_ORDER_OPENAPI: Final = {**object_body("Bundle"), "parameters": [IF_NONE_EXIST]}


def fhir_routes(service: Service) -> APIRouter:
    """All routes under `/fhir`."""
    router = APIRouter(prefix="/fhir", tags=["fhir"])
    _add_order_route(router, service)
    add_search_routes(router, service)
    _add_create_route(router, service)
    _add_instance_routes(router, service)
    _add_history_routes(router, service)
    return router


def _add_order_route(router: APIRouter, service: Service) -> None:
    @router.post(f"/{CREATE_ORDER}", summary="Create an order from a bundle", openapi_extra=_ORDER_OPENAPI)
    async def create_order(request: Request) -> Response:
        caller = authenticate_caller(request, service)
        bundle = decode_object(await read_json_body(request, service), "Bundle")
        condition = request.headers.get("if-none-exist")
        existing = updates.find_existing(service, "ProcedureRequest", condition, caller)
        created = service.orders.find_by_line(existing) if existing else service.orders.create(bundle, caller)
        entries = bundle_entries(created, base_address(request, service))
        return json_response({"resourceType": "Bundle", "type": "collection", "entry": entries})


def _add_create_route(router: APIRouter, service: Service) -> None:
    @router.post(
        "/{resource}",
        summary="Create a Patient, Observation, DiagnosticReport or Binary",
        responses=_CREATE_RESPONSES,
        openapi_extra=any_resource_body(IF_NONE_EXIST),
    )
    async def create(resource: ResourceName, request: Request) -> Response:
        caller, kind = authenticate_caller(request, service), known_type(resource)
        body = await _read_resource_body(kind, request, service)
        existing = updates.find_existing(service, kind, request.headers.get("if-none-exist"), caller)
        if existing is not None:
            return existing_response(existing, caller, request, service)
        return created_response(updates.create(service, kind, body, caller), request, service)


def _add_instance_routes(router: APIRouter, service: Service) -> None:
    @router.get(
        "/{resource}/{id_}",
        summary="Read, with an ETag header",
        responses=_READ_RESPONSES,
        openapi_extra={"parameters": [IF_NONE_MATCH]},
    )
    async def read(resource: ResourceName, id_: str, request: Request) -> Response:
        stored = service.resources.get(Ref(known_type(resource), id_), authenticate_caller(request, service))
        if stored.ref.type == "Binary":
            return document_response(stored, request.headers.get("accept"))
        if stored.etag() in {one.strip() for one in request.headers.get("if-none-match", "").split(",")}:
            return Response(status_code=304, headers={"ETag": stored.etag()})
        return resource_response(stored)

    @router.put(
        "/{resource}/{id_}", summary="Replace the whole resource, with If-Match", openapi_extra=any_resource_body(IF_MATCH)
    )
    async def replace(resource: ResourceName, id_: str, request: Request) -> Response:
        caller, ref = authenticate_caller(request, service), Ref(known_type(resource), id_)
        body = await _read_resource_body(ref.type, request, service)
        updated = updates.update(service, ref, body, caller, request.headers.get("if-match"))
        return written_response(updated, 200, request, service)

    @router.post(
        "/{resource}/{id_}",
        summary="Create with a client-chosen id",
        responses=_CREATE_RESPONSES,
        openapi_extra=any_resource_body(),
    )
    async def create_with_id(resource: ResourceName, id_: str, request: Request) -> Response:
        caller, ref = authenticate_caller(request, service), Ref(known_type(resource), id_)
        body = await _read_resource_body(ref.type, request, service)
        if service.resources.find(ref):
            raise HttpError.of(409, "duplicate", f"{ref.type}/{id_}: this id exists already; use PUT to update")
        if body.get("id", id_) != id_:
            raise HttpError.of(400, "invalid", f"{ref.type}.id: {body['id']!r} differs from the id in the address, {id_}")
        return created_response(updates.create(service, ref.type, body, caller, id_), request, service)

    if service.config.strict:

        @router.delete("/{resource}/{id_}", summary="Delete; needs the right owner", status_code=204)
        async def delete(resource: ResourceName, id_: str, request: Request) -> Response:
            service.resources.delete(
                service.resources.get(Ref(known_type(resource), id_), authenticate_caller(request, service), "owner")
            )
            return Response(status_code=204)

    @router.post(
        f"/{{resource}}/{{id_}}/{META_ADD}",
        summary="Grant rights on an existing resource",
        openapi_extra=object_body("Parameters"),
    )
    async def meta_add(resource: ResourceName, id_: str, request: Request) -> Response:
        stored = service.resources.get(Ref(known_type(resource), id_), authenticate_caller(request, service), "owner")
        parameters = decode_object(await read_json_body(request, service), "Parameters")
        grants = parse_meta_add(parameters, service.config)
        updated = decode_stored(service.resources.add_rights(stored, grants).body)
        return json_response({"resourceType": "Parameters", "parameter": [{"name": "return", "valueMeta": updated["meta"]}]})


def _add_history_routes(router: APIRouter, service: Service) -> None:
    @router.get("/{resource}/{id_}/_history", summary="Stored versions; needs the right readhistory")
    async def history(resource: ResourceName, id_: str, request: Request) -> Response:
        stored = service.resources.get(Ref(known_type(resource), id_), authenticate_caller(request, service), "readhistory")
        entries = [{"resource": decode_stored(body)} for body in service.store.versions(stored)]
        return json_response({"resourceType": "Bundle", "type": "history", "entry": entries})

    @router.get("/{resource}/{id_}/_history/{version}", summary="One version; needs the right readhistory")
    async def read_version(resource: ResourceName, id_: str, version: str, request: Request) -> Response:
        stored = service.resources.get(Ref(known_type(resource), id_), authenticate_caller(request, service), "readhistory")
        is_number = version.isascii() and version.isdigit() and len(version) < 10
        body = service.store.get_version(stored, int(version)) if is_number else None
        if body is None:
            raise HttpError.of(404, "not-found", f"{stored.ref.type}/{id_}/_history/{version}: this version is not stored")
        return Response(body, 200, {"ETag": f'W/"{version}"'}, "application/json")


async def _read_resource_body(kind: str, request: Request, service: Service) -> Json:
    """The resource in the body; a document may be sent as it is, with its own media type."""
    if kind == "Binary" and content_type(request) not in resource_types(service):
        return build_binary(await read_body(request, service), content_type(request))
    return decode_object(await read_json_body(request, service), kind)
