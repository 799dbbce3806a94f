"""The FHIR rows of the endpoint table. Paths arrive in one spelling (see `spelling`); here they meet their meaning."""

from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from lab_sandbox import updates
from lab_sandbox.access_rights import parse_meta_add
from lab_sandbox.documents import build_binary, decode_content, negotiate_media_type
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import Json, decode_object, decode_stored
from lab_sandbox.http_helpers import (
    JSON_TYPES,
    authenticate_caller,
    base_address,
    content_type,
    json_response,
    read_body,
    read_json_body,
    resource_response,
)
from lab_sandbox.openapi_schemas import (
    IF_MATCH,
    IF_NONE_EXIST,
    IF_NONE_MATCH,
    SEARCH_OPENAPI,
    ResourceName,
    any_resource_body,
    object_body,
)
from lab_sandbox.path_aliases import CREATE_ORDER, META_ADD, canonical_type
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.search import build_search_bundle, bundle_entries, parse_search
from lab_sandbox.service import Service

_READ_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The resource, or a document in the format that Accept selects.",
        "content": {"application/json": {}, "*/*": {}},
    },
    304: {"description": "The version in If-None-Match is the newest."},
}


_CREATE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "A new Patient, or the one resource that If-None-Exist found.", "content": {"application/json": {}}},
    201: {"description": "A new upload of the laboratory, with its ETag and Location.", "content": {"application/json": {}}},
}
_ORDER_OPENAPI: Final = {**object_body("Bundle"), "parameters": [IF_NONE_EXIST]}


def fhir_routes(service: Service) -> APIRouter:
    """All routes under `/fhir`."""
    router = APIRouter(prefix="/fhir", tags=["fhir"])
    _add_order_route(router, service)
    _add_search_and_create_routes(router, service)
    _add_instance_routes(router, service)
    _add_history_routes(router, service)
    return router


def _add_order_route(router: APIRouter, service: Service) -> None:
    @router.post(f"/{CREATE_ORDER}", summary="Create order from bundle", openapi_extra=_ORDER_OPENAPI)
    async def create_order(request: Request) -> Response:
        caller = authenticate_caller(request, service)
        bundle = decode_object(await read_json_body(request, service), "Bundle")
        condition = request.headers.get("if-none-exist")
        existing = updates.find_existing(service, "ProcedureRequest", condition, caller)
        kept = service.orders.find_by_line(existing) if existing else service.orders.create(bundle, caller)
        return json_response(
            {"resourceType": "Bundle", "type": "collection", "entry": bundle_entries(kept, base_address(request, service))}
        )


def _add_search_and_create_routes(router: APIRouter, service: Service) -> None:
    @router.get(
        "/{resource}",
        summary="Search: Tasks, contracts, questionnaire responses and what else was uploaded",
        openapi_extra=SEARCH_OPENAPI,
    )
    async def search(resource: ResourceName, request: Request) -> Response:
        caller, kind = authenticate_caller(request, service), _resource_type(resource)
        if kind == "QuestionnaireResponse" and not service.config.rules.questionnaire_search:
            raise HttpError.of(501, "not-supported", "QuestionnaireResponse: this service does not offer the search")
        pairs = parse_qsl(request.url.query, keep_blank_values=True)
        query = parse_search(kind, pairs, service.config)
        found = service.store.find(
            kind, query.criteria, lambda access: access.allows("read", caller.guid), after=query.after, limit=query.count + 1
        )
        address = base_address(request, service)
        page, here = found[: query.count], f"{address}fhir/{kind}"
        following = f"{here}?{query.next_page(page[-1])}" if len(found) > query.count else None
        return json_response(build_search_bundle(page, address, f"{here}?{request.url.query}", following))

    @router.post(
        "/{resource}",
        summary="Create: Patient, Observation, DiagnosticReport, Binary",
        responses=_CREATE_RESPONSES,
        openapi_extra=any_resource_body(IF_NONE_EXIST),
    )
    async def create(resource: ResourceName, request: Request) -> Response:
        caller, kind = authenticate_caller(request, service), _resource_type(resource)
        body = await _read_resource_body(kind, request, service)
        existing = updates.find_existing(service, kind, request.headers.get("if-none-exist"), caller)
        if existing is not None:
            return resource_response(existing)
        return _created_response(updates.create(service, kind, body, caller), request, service)


def _add_instance_routes(router: APIRouter, service: Service) -> None:
    @router.get(
        "/{resource}/{id_}",
        summary="Read; the response carries the ETag header",
        responses=_READ_RESPONSES,
        openapi_extra={"parameters": [IF_NONE_MATCH]},
    )
    async def read(resource: ResourceName, id_: str, request: Request) -> Response:
        kept = service.resources.get(Ref(_resource_type(resource), id_), authenticate_caller(request, service))
        if kept.ref.type == "Binary":
            return _document_response(kept, request.headers.get("accept"))
        if kept.etag() in {one.strip() for one in request.headers.get("if-none-match", "").split(",")}:
            return Response(status_code=304, headers={"ETag": kept.etag()})
        return resource_response(kept)

    @router.put(
        "/{resource}/{id_}", summary="Update the whole resource, with If-Match", openapi_extra=any_resource_body(IF_MATCH)
    )
    async def replace(resource: ResourceName, id_: str, request: Request) -> Response:
        caller, ref = authenticate_caller(request, service), Ref(_resource_type(resource), id_)
        body = await _read_resource_body(ref.type, request, service)
        return resource_response(updates.update(service, ref, body, caller, request.headers.get("if-match")))

    @router.post(
        "/{resource}/{id_}",
        summary="The alternative form: create with a client-chosen id",
        responses=_CREATE_RESPONSES,
        openapi_extra=any_resource_body(),
    )
    async def create_with_id(resource: ResourceName, id_: str, request: Request) -> Response:
        caller, ref = authenticate_caller(request, service), Ref(_resource_type(resource), id_)
        body = await _read_resource_body(ref.type, request, service)
        if service.resources.find(ref):
            raise HttpError.of(409, "duplicate", f"{ref.type}/{id_}: this id is taken; updates use PUT")
        if body.get("id", id_) != id_:
            raise HttpError.of(400, "invalid", f"{ref.type}.id: {body['id']!r} is not the id in the address, {id_}")
        return _created_response(updates.create(service, ref.type, body, caller, id_), request, service)

    @router.post(
        f"/{{resource}}/{{id_}}/{META_ADD}",
        summary="Grant rights on an existing resource",
        openapi_extra=object_body("Parameters"),
    )
    async def meta_add(resource: ResourceName, id_: str, request: Request) -> Response:
        kept = service.resources.get(Ref(_resource_type(resource), id_), authenticate_caller(request, service), "owner")
        parameters = decode_object(await read_json_body(request, service), "Parameters")
        grants = parse_meta_add(parameters, service.config)
        stored = decode_stored(service.resources.add_rights(kept, grants).body)
        return json_response({"resourceType": "Parameters", "parameter": [{"name": "return", "valueMeta": stored["meta"]}]})


def _add_history_routes(router: APIRouter, service: Service) -> None:
    @router.get("/{resource}/{id_}/_history", summary="Versions that are still kept, with the right readhistory")
    async def history(resource: ResourceName, id_: str, request: Request) -> Response:
        kept = service.resources.get(Ref(_resource_type(resource), id_), authenticate_caller(request, service), "readhistory")
        listed = [{"resource": decode_stored(body)} for body in service.store.versions(kept)]
        return json_response({"resourceType": "Bundle", "type": "history", "entry": listed})

    @router.get("/{resource}/{id_}/_history/{version}", summary="One version, with the right readhistory")
    async def read_version(resource: ResourceName, id_: str, version: str, request: Request) -> Response:
        kept = service.resources.get(Ref(_resource_type(resource), id_), authenticate_caller(request, service), "readhistory")
        known = version.isascii() and version.isdigit() and len(version) < 10
        body = service.store.get_version(kept, int(version)) if known else None
        if body is None:
            raise HttpError.of(404, "not-found", f"{kept.ref.type}/{id_}/_history/{version}: this version is not kept")
        return Response(body, 200, {"ETag": f'W/"{version}"'}, "application/json")


def _resource_type(resource: str) -> str:
    kind = canonical_type(resource)
    if kind is None:
        raise HttpError.of(404, "not-supported", f"{resource}: no resource type of this service")
    return kind


async def _read_resource_body(kind: str, request: Request, service: Service) -> Json:
    """The resource in the body; documents may come as they are, under their own media type."""
    if kind == "Binary" and content_type(request) not in JSON_TYPES:
        return build_binary(await read_body(request, service), content_type(request))
    return decode_object(await read_json_body(request, service), kind)


def _created_response(stored: StoredResource, request: Request, service: Service) -> Response:
    """200 for patients ("Errors": success of patient creation), 201 for what the laboratory uploads."""
    location = f"{base_address(request, service)}fhir/{stored.ref.type}/{stored.ref.id}"
    return resource_response(stored, 200 if stored.ref.type == "Patient" else 201, {"Location": location})


def _document_response(resource: StoredResource, accept: str | None) -> Response:
    """A document in the format that Accept selects; 406 when there is no such format of it."""
    binary = decode_stored(resource.body)
    stored = str(binary.get("contentType"))
    chosen = negotiate_media_type(accept, stored)
    if chosen is None:
        raise HttpError.of(406, "not-supported", f"Accept: the document is to be had as {stored}, not as {accept}")
    if chosen == "application/json":
        return resource_response(resource)
    return Response(decode_content(binary), 200, {"ETag": resource.etag()}, chosen)
