"""Implements the port `Exchange` over HTTP (interface: Endpoints)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog
from typing_extensions import override

from lab_agent.domain.ids import ResourceId
from lab_agent.domain.jobs import ORDER_TASK_CODE, TASK_REQUESTED
from lab_agent.domain.received_order import ResourceRef
from lab_agent.domain.values import Identifier
from lab_agent.errors import AuthenticationRequired, ResourceNotReadable, SearchNotSupported, ServiceUnavailable
from lab_agent.exchange import fhir_http
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.requests import AuthorizedRequests
from lab_agent.exchange.responses import RequestContext, RequestKind, invalid_response, parse_object
from lab_agent.exchange.search_criteria import SearchAnswer, SearchCriteria, found_rows, select_rows
from lab_agent.exchange.search_watch import SearchWatch
from lab_agent.exchange.urls import UrlTemplates, if_none_exist_query, resolve_next_page
from lab_agent.http_client import HttpClient, HttpOptions, HttpResponse
from lab_agent.metrics import CallObserver, ignore
from lab_agent.ports.exchange import Exchange, Json, SavedResource, SearchKind, UnfilteredSearch
from lab_agent.settings.exchange import ExchangeSettings

_MAX_PAGES = 1000

_log = structlog.get_logger(__name__)


def http_options(settings: ExchangeSettings) -> HttpOptions:
    """Options of the HTTP client for these settings."""
    return HttpOptions(
        timeout=settings.timeout,
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_response=settings.max_response,
        max_connections=settings.max_concurrency + 2,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
    )


class ExchangeClient(Exchange):
    """The exchange service. `on_call` is told of every call."""

    def __init__(
        self, settings: ExchangeSettings, http: HttpClient, authenticator: Authenticator, *, on_call: CallObserver = ignore
    ) -> None:
        self._settings = settings
        self._base = settings.base_url
        self._urls = UrlTemplates(settings.paths, page_size=settings.page_size)
        self._requests = AuthorizedRequests(
            self._base, http, authenticator, max_concurrency=settings.max_concurrency, on_call=on_call
        )
        self._clock = authenticator.clock
        self._watch = SearchWatch()
        self._questionnaire_search_supported = settings.questionnaire_search == "auto"
        self._contract_ids: dict[str, tuple[ResourceId, ...]] = {}

    @override
    async def requested_order_tasks(self) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.ORDER_TASKS, resource_type="Task", status=TASK_REQUESTED, code=ORDER_TASK_CODE)
        return (await self._search(criteria, self._urls.order_tasks())).rows

    @override
    async def line_tasks(self, order_task: ResourceId) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task", part_of=ResourceRef("Task", order_task))
        return _filtered(criteria, await self._search(criteria, self._urls.line_tasks(order_task)))

    @override
    async def questionnaire_responses(self, procedure_requests: Collection[ResourceId]) -> tuple[Json, ...] | None:
        """A rejected search counts as unsupported for as long as this client lives."""
        found: list[Json] = []
        for procedure_request in procedure_requests:
            if not self._questionnaire_search_supported:
                return None
            try:
                found += await self._responses_about(procedure_request)
            except SearchNotSupported as exc:
                self._questionnaire_search_supported = False
                _log.warning(
                    "the service does not support searching questionnaire responses",
                    action="exchange.search_not_supported",
                    status=exc.status,
                )
        return fhir_http.deduplicate(found) if self._questionnaire_search_supported else None

    @override
    async def contract_ids(self, code: str) -> tuple[ResourceId, ...]:
        """Unknown contracts are not cached: they may be created at any time."""
        if code not in self._contract_ids:
            identifier = Identifier(system=f"{self._settings.lab_codes_url}/contract", value=code)
            found = await self._search_identifier("Contract", identifier)
            ids = tuple(contract for body in found if (contract := fhir_http.body_id(body)) is not None)
            if not ids:
                return ()
            self._contract_ids[code] = ids
        return self._contract_ids[code]

    @override
    async def read(self, resource_type: str, resource_id: ResourceId) -> SavedResource:
        context = RequestContext(kind=RequestKind.READ, description=f"GET {resource_type}")
        try:
            body, answer = await self._requests.get(context, self._urls.read(resource_type, resource_id))
        except AuthenticationRequired as exc:
            await self.check()  # if this succeeds, the 401 is about this resource alone
            raise ResourceNotReadable(f"{context.description} was answered with 401", status=401) from exc
        version = fhir_http.etag_version(answer.headers.get("etag")) or fhir_http.body_version(body)
        if (
            not fhir_http.is_resource_type(body, resource_type)
            or fhir_http.body_id(body) not in {None, resource_id}
            or version is None
        ):
            raise invalid_response(context, f"something that is not this {resource_type} with a version")
        return SavedResource(resource_type=resource_type, id=resource_id, version=version, body=body)

    @override
    async def create(self, resource_type: str, body: Json, *, if_none_exist: Identifier | None = None) -> SavedResource:
        """`created` is uncertain only for a 200 to a conditional create, and False then."""
        context = RequestContext(
            kind=RequestKind.WRITE, description=f"POST {resource_type}", if_none_exist=if_none_exist is not None
        )
        headers = {} if if_none_exist is None else {"If-None-Exist": if_none_exist_query(if_none_exist)}
        answer = await self._requests.write(context, "POST", self._urls.create(resource_type), headers, body)
        created = answer.status == 201 or if_none_exist is None
        return _parse_stored(context, answer, resource_type, body, created=created)

    @override
    async def update(self, resource_type: str, resource_id: ResourceId, body: Json, *, version: str) -> SavedResource:
        context = RequestContext(kind=RequestKind.WRITE, description=f"PUT {resource_type}", if_match=True)
        sent = fhir_http.with_security(body, self._settings.put_security)
        address = self._urls.update(resource_type, resource_id)
        answer = await self._requests.write(context, "PUT", address, {"If-Match": fhir_http.if_match(version)}, sent)
        saved = _parse_stored(context, answer, resource_type, {**sent, "id": resource_id})
        if saved.id != resource_id:
            raise invalid_response(context, f"another {resource_type}")
        return saved

    @override
    async def find(self, resource_type: str, identifier: Identifier) -> tuple[SavedResource, ...]:
        """A match without a version is read again, for its ETag."""
        found = await self._search_identifier(resource_type, identifier)
        return tuple([await self._to_stored(resource_type, body) for body in found if fhir_http.body_id(body)])

    @override
    async def upload_document(self, content: bytes, content_type: str, *, readers: tuple[str, ...]) -> SavedResource:
        return await self.create("Binary", fhir_http.build_binary(content, content_type, readers))

    @override
    async def check(self) -> None:
        """Fetch one page of new orders."""
        await self._fetch_page("Task", self._urls.order_tasks())

    @override
    def take_search_findings(self) -> Mapping[SearchKind, bool]:
        return self._watch.take()

    async def _responses_about(self, procedure_request: ResourceId) -> tuple[Json, ...]:
        criteria = SearchCriteria(
            kind=SearchKind.QUESTIONNAIRES,
            resource_type="QuestionnaireResponse",
            subject=ResourceRef("ProcedureRequest", procedure_request),
        )
        return _filtered(criteria, await self._search(criteria, self._urls.questionnaire_responses(procedure_request)))

    async def _search_identifier(self, resource_type: str, identifier: Identifier) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.BY_IDENTIFIER, resource_type=resource_type, identifier=identifier)
        return (await self._search(criteria, self._urls.by_identifier(resource_type, identifier))).rows

    async def _search(self, criteria: SearchCriteria, address: str) -> SearchAnswer:
        """Fetch all pages, and hold every row against the search."""
        found = fhir_http.deduplicate(await self._fetch_rows(criteria.resource_type, address))
        answer = select_rows(criteria, found)
        if not self._watch.record(criteria.kind, answer, self._clock.now()):
            _log.debug("search not filtered", action="exchange.search_not_filtered", search=criteria.kind.value)
        return answer

    async def _fetch_rows(self, resource_type: str, address: str) -> list[Json]:
        """Fetch all pages. A `next` link that leads to a page that was read hides what follows: that is an error."""
        found: list[Json] = []
        seen: set[str] = set()
        onward: str | None = address
        while onward is not None:
            if len(seen) >= _MAX_PAGES:
                raise ServiceUnavailable(f"the search for {resource_type} has more than {_MAX_PAGES} pages")
            bundle, url = await self._fetch_page(resource_type, onward)
            seen.update((onward, url))
            found += found_rows(bundle)
            link = fhir_http.next_link(bundle)
            onward = None if link is None else resolve_next_page(self._base, url, link)
            if onward in seen:
                raise ServiceUnavailable(
                    f"the search for {resource_type} leads in a circle: a `next` link names a page that was read"
                )
        return found

    async def _fetch_page(self, resource_type: str, address: str) -> tuple[Json, str]:
        context = RequestContext(kind=RequestKind.SEARCH, description=f"searching {resource_type}")
        bundle, answer = await self._requests.get(context, address)
        if not fhir_http.is_resource_type(bundle, "Bundle"):
            raise invalid_response(context, "something that is not a Bundle")
        return bundle, answer.url

    async def _to_stored(self, resource_type: str, body: Json) -> SavedResource:
        version = fhir_http.body_version(body)
        found = ResourceId(str(body["id"]))
        if version is None:
            return await self.read(resource_type, found)
        return SavedResource(resource_type=resource_type, id=found, version=version, body=body)


def _filtered(criteria: SearchCriteria, answer: SearchAnswer) -> tuple[Json, ...]:
    if answer.foreign:
        raise UnfilteredSearch(criteria.kind, answer.rows, answer.foreign)
    return answer.rows


def _parse_stored(
    context: RequestContext, answer: HttpResponse, resource_type: str, sent: Json, *, created: bool = False
) -> SavedResource:
    """Read the response to a write: its body (or what was sent, if it has none) with the id and version of the headers."""
    location = fhir_http.parse_location(answer.headers.get("location"))
    body = parse_object(context, answer.body) if answer.body.strip() else sent
    if not fhir_http.is_resource_type(body, resource_type):
        raise invalid_response(context, f"something that is not a {resource_type}")
    resource_id = fhir_http.body_id(body) or (location[0] if location else None)
    version = (
        fhir_http.etag_version(answer.headers.get("etag"))
        or (answer.body and fhir_http.body_version(body))
        or (location and location[1])
    )
    if resource_id is None or not version:
        raise invalid_response(context, f"a {resource_type} without id or version")
    return SavedResource(resource_type=resource_type, id=resource_id, version=str(version), body=body, created=created)
