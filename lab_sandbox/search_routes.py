"""Searches and their pages, with links by criteria, or as a strict service pages a remembered search."""

from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from lab_sandbox.config import Counterparty
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import Json
from lab_sandbox.http_helpers import authenticate_caller, base_address, json_response, known_type
from lab_sandbox.openapi_schemas import SEARCH_OPENAPI, ResourceName
from lab_sandbox.search import SearchQuery, build_search_bundle, parse_number, parse_search
from lab_sandbox.search_results import RememberedSearch, page_link
from lab_sandbox.service import Service


def add_search_routes(router: APIRouter, service: Service) -> None:
    """`GET /fhir/<Type>`, and the pages of remembered searches."""

    @router.get("", summary="A page of a remembered search, by the link of the page before", include_in_schema=False)
    async def resume(request: Request) -> Response:
        caller, query = authenticate_caller(request, service), dict(request.query_params)
        search = service.search_results.resume(query.get("_getpages", ""), caller)
        offset, count = (parse_number(name, query.get(name, "")) for name in ("_getpagesoffset", "_count"))
        return json_response(_remembered_page(search, offset, max(1, count), request, service))

    @router.get(
        "/{resource}",
        summary="Search Tasks, contracts, questionnaire responses and uploaded resources",
        openapi_extra=SEARCH_OPENAPI,
    )
    async def search(resource: ResourceName, request: Request) -> Response:
        caller, kind = authenticate_caller(request, service), known_type(resource)
        if kind == "QuestionnaireResponse" and not service.config.rules.questionnaire_search:
            raise HttpError.of(501, "not-supported", "QuestionnaireResponse: search is not supported")
        query = parse_search(kind, parse_qsl(request.url.query, keep_blank_values=True), service.config)
        if not service.config.strict and not service.config.search_age_seconds:
            return json_response(_page_by_criteria(query, caller, request, service))
        is_fresh = request.headers.get("cache-control", "").lower() in {"no-cache", "no-store"}
        remembered = service.search_results.search(query, caller, fresh=is_fresh)
        return json_response(_remembered_page(remembered, 0, query.count, request, service))


def _page_by_criteria(query: SearchQuery, caller: Counterparty, request: Request, service: Service) -> Json:
    """The results after the position in the query; the next page has the same criteria and another position."""
    found = service.store.find(
        query.type,
        query.criteria,
        lambda access: service.resources.allows(access, "read", caller),
        after=query.after,
        limit=query.count + 1,
    )
    address = base_address(request, service)
    page, url = found[: query.count], f"{address}fhir/{query.type}"
    next_url = f"{url}?{query.next_page(page[-1])}" if len(found) > query.count else None
    return build_search_bundle(page, address, f"{url}?{request.url.query}", next_url)


def _remembered_page(search: RememberedSearch, offset: int, count: int, request: Request, service: Service) -> Json:
    address, end = base_address(request, service), offset + count
    next_url = page_link(address, search, end, count) if end < len(search.refs) else None
    self_url = page_link(address, search, offset, count)
    bundle = build_search_bundle(service.search_results.page(search, offset, count), address, self_url, next_url)
    entries = [{**entry, "search": {"mode": "match"}} for entry in bundle["entry"]]
    return {**bundle, "total": len(search.refs), "entry": entries}
