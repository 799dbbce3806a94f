"""Implements the port `Exchange` over HTTP (interface: Endpoints)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from typing_extensions import override

from lab_agent.domain.ids import ResourceId
from lab_agent.domain.jobs import ORDER_TASK_CODE, TASK_REQUESTED
from lab_agent.domain.received_order import ResourceRef
from lab_agent.domain.values import Identifier
from lab_agent.errors import (
    AuthenticationRequired,
    Failure,
    ForeignLink,
    InvalidResponse,
    OutcomeUnknown,
    ResourceNotReadable,
    SearchNotSupported,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
    TemporaryFailure,
)
from lab_agent.exchange import fhir_http
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.bundle_pages import BundlePage, PageParser, find_foreign_links, parse_page, parse_page_of_ids
from lab_agent.exchange.requests import AuthorizedRequests
from lab_agent.exchange.responses import RequestContext, RequestKind, invalid_response, parse_object
from lab_agent.exchange.search_criteria import RowSelection, SearchAnswer, SearchCriteria, found_rows
from lab_agent.exchange.search_watch import SearchWatch
from lab_agent.exchange.urls import UrlTemplates, if_none_exist_query, resolve_next_page
from lab_agent.http_client import HttpClient, HttpOptions, HttpResponse
from lab_agent.metrics import CallObserver, ignore
from lab_agent.ports.exchange import AnswersWithheld, Exchange, Json, SavedResource, SearchKind, ServiceClock, UnfilteredSearch
from lab_agent.settings.exchange import ExchangeSettings

_MAX_PAGES = 1000
_MANY_ROWS = 1000
_NO_SEARCH_MEMORY = timedelta(hours=1)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Omissions:
    """What a search left out: the ids of resources whose JSON is invalid, and why pages may be missing."""

    unreadable: list[str] = field(default_factory=list)
    cut_off: TemporaryFailure | None = None


def http_options(settings: ExchangeSettings) -> HttpOptions:
    """Options of the HTTP client for these settings."""
    return HttpOptions(
        timeout=settings.timeout,
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_response=settings.max_response,
        max_header=settings.max_header,
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
            self._base,
            http,
            authenticator,
            max_concurrency=settings.max_concurrency,
            on_call=on_call,
            content_type=settings.content_type,
        )
        self._authenticator = authenticator
        self._clock = authenticator.clock
        self._watch = SearchWatch()
        self._no_questionnaire_search_until: datetime | None = None
        self._contract_ids: dict[str, tuple[ResourceId, ...]] = {}
        self._order_omissions = _Omissions()

    @override
    async def requested_order_tasks(self) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.ORDER_TASKS, resource_type="Task", status=TASK_REQUESTED, code=ORDER_TASK_CODE)
        omissions = _Omissions()
        answer = await self._search(criteria, self._urls.order_tasks(), omissions, parse_page_of_ids)
        self._order_omissions = omissions
        return answer.rows

    @override
    def unreadable_order_tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._order_omissions.unreadable))

    @override
    def order_tasks_cut_off(self) -> TemporaryFailure | None:
        return self._order_omissions.cut_off

    @override
    async def line_tasks(self, order_task: ResourceId) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task", part_of=ResourceRef("Task", order_task))
        return _filtered(criteria, await self._search(criteria, self._urls.line_tasks(order_task)))

    @override
    async def questionnaire_responses(self, procedure_requests: Collection[ResourceId]) -> tuple[Json, ...] | None:
        """A rejected search counts as unsupported for an hour: one such answer may be a proxy's.

        Raises `ServiceRejected` where the right to search is missing (403): it may be granted.
        """
        found: list[Json] = []
        withheld = False
        for procedure_request in procedure_requests:
            if not self._may_search_questionnaires():
                return None
            try:
                found += await self._responses_about(procedure_request)
            except AnswersWithheld as some:
                found, withheld = [*found, *some.rows], True
            except SearchNotSupported as exc:
                self._no_questionnaire_search_until = self._clock.now() + _NO_SEARCH_MEMORY
                _log.warning(
                    "the service does not support searching questionnaire responses",
                    action="exchange.search_not_supported",
                    status=exc.status,
                )
                return None
        rows = fhir_http.deduplicate(found)
        if withheld:
            raise AnswersWithheld(rows)
        return rows if self._may_search_questionnaires() else None

    def _may_search_questionnaires(self) -> bool:
        until = self._no_questionnaire_search_until
        return self._settings.questionnaire_search == "auto" and (until is None or self._clock.now() >= until)

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
        address = self._urls.read(resource_type, resource_id)
        try:
            body, answer = await self._requests.get(context, address, parse_object)
        except AuthenticationRequired:
            await self.check()
            body, answer = await self._read_signed_in(context, address)
        version = fhir_http.resource_version(answer.headers, body, resource_type)
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
        return await self._requests.parse(
            answer.body, lambda _: _parse_stored(context, answer, resource_type, body, created=created)
        )

    @override
    async def update(self, resource_type: str, resource_id: ResourceId, body: Json, *, version: str) -> SavedResource:
        context = RequestContext(kind=RequestKind.WRITE, description=f"PUT {resource_type}", if_match=True)
        sent = fhir_http.with_security(body, self._settings.put_security)
        address = self._urls.update(resource_type, resource_id)
        answer = await self._requests.write(context, "PUT", address, {"If-Match": fhir_http.if_match(version)}, sent)
        as_sent = {**sent, "id": resource_id}
        saved = await self._requests.parse(answer.body, lambda _: _parse_stored(context, answer, resource_type, as_sent))
        if saved.id != resource_id:
            raise invalid_response(context, f"another {resource_type}")
        return saved

    @override
    async def find(self, resource_type: str, identifier: Identifier) -> tuple[SavedResource, ...]:
        """A match without a version is read again, for its ETag."""
        found = await self._search_identifier(resource_type, identifier)
        return tuple([await self._to_stored(resource_type, body) for body in found if fhir_http.body_id(body)])

    @override
    async def upload_document(
        self, content: bytes, content_type: str, *, readers: tuple[str, ...], name: str | None = None
    ) -> SavedResource:
        own_guid = self._settings.laboratory if self._settings.grant_own_read else None
        body = fhir_http.build_binary(content, content_type, readers, own_guid)
        if name is not None and self._settings.document_search == "tag":
            body = fhir_http.with_tag(body, self._document_tag(name))
        return await self.create("Binary", body)

    @override
    async def find_document(self, name: str) -> SavedResource | None:
        if self._settings.document_search == "off":
            return None
        tag = self._document_tag(name)
        criteria = SearchCriteria(kind=SearchKind.BY_TAG, resource_type="Binary", tag=tag)
        try:
            answer = await self._search(criteria, self._urls.by_tag("Binary", tag))
        except SearchNotSupported:
            return None
        found = next((row for row in answer.rows if fhir_http.body_id(row)), None)
        return await self._to_stored("Binary", found) if found else None

    def _document_tag(self, name: str) -> Identifier:
        return Identifier(system=f"{self._settings.lab_codes_url}/document", value=name)

    @override
    def document_url(self, document: ResourceId) -> str:
        return self._urls.document(document)

    @override
    async def read_document(self, document: ResourceId, content_type: str) -> bytes:
        """A service may answer with the Binary resource instead of the document in it."""
        context = RequestContext(kind=RequestKind.READ, description="GET Binary")
        body = await self._requests.download(context, self._urls.document(document), accept=f"{content_type}, */*;q=0.1")
        return await self._requests.parse(body, lambda found: fhir_http.document_content(found, document))

    @override
    async def check(self) -> None:
        """Fetch one page of new orders."""
        await self._fetch_page("Task", self._urls.order_tasks())

    @override
    async def answers(self, task: ResourceId | None = None) -> bool:
        kind, what = (RequestKind.SEARCH, "searching") if task is None else (RequestKind.READ, "GET")
        context = RequestContext(kind=kind, description=f"{what} Task")
        try:
            if task is None:
                await self._requests.get_once(context, self._urls.order_tasks(), parse_page)
            else:
                await self._requests.get_once(context, self._urls.read("Task", task), parse_object)
        except (ServiceUnavailable, OutcomeUnknown, InvalidResponse, ForeignLink):
            return False
        except Failure:
            return True
        return True

    @override
    def hold(self) -> None:
        self._requests.gate.is_held = True

    @override
    def release(self) -> None:
        self._requests.gate.is_held = False

    @override
    async def foreign_links(self) -> Mapping[str, str]:
        """Pages of one Task are asked for, since one long page has no `next` link."""
        try:
            page, _ = await self._fetch_page("Task", UrlTemplates(self._settings.paths, page_size=1).order_tasks())
        except ServiceRejected:  # it does not know `_count`
            page, _ = await self._fetch_page("Task", self._urls.order_tasks())
        return find_foreign_links(self._base, page.bundle)

    @override
    async def altered_etag(self) -> str | None:
        """A Task of the first page is read, or else a configured contract; one that cannot be read shows nothing."""
        page, _ = await self._fetch_page("Task", self._urls.order_tasks())
        task = next((found for row in found_rows(page.bundle) if (found := fhir_http.body_id(row))), None)
        contracts = () if task else [each for code in self._settings.contracts for each in await self.contract_ids(code)]
        resource_type, found = ("Task", task) if task else ("Contract", next(iter(contracts), None))
        if found is None:
            return None
        context = RequestContext(kind=RequestKind.READ, description=f"GET {resource_type}")
        try:
            body, answer = await self._requests.get(context, self._urls.read(resource_type, found), parse_object)
        except (ServiceRejected, InvalidResponse):
            return None
        etag, version = fhir_http.etag_version(answer.headers.get("etag")), fhir_http.body_version(body)
        return f'"{etag}" for version {version}' if etag and version and etag != version else None

    @override
    def service_clock(self) -> ServiceClock | None:
        return self._requests.clocks.read()

    @override
    def take_search_findings(self) -> Mapping[SearchKind, bool]:
        return self._watch.take()

    async def _responses_about(self, procedure_request: ResourceId) -> tuple[Json, ...]:
        criteria = SearchCriteria(
            kind=SearchKind.QUESTIONNAIRES,
            resource_type="QuestionnaireResponse",
            subject=ResourceRef("ProcedureRequest", procedure_request),
        )
        address = self._urls.questionnaire_responses(procedure_request)
        try:
            answer = await self._search(criteria, address)
        except AuthenticationRequired as exc:
            await self.check()  # while we are signed in, a 401 is about this search alone
            text = "searching QuestionnaireResponse was answered with 401"
            raise ServiceRejected(text, status=401, may_pass=True) from exc
        rows = _filtered(criteria, answer)
        if answer.withholds:
            raise AnswersWithheld(rows)
        return rows

    async def _search_identifier(self, resource_type: str, identifier: Identifier) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.BY_IDENTIFIER, resource_type=resource_type, identifier=identifier)
        return (await self._search(criteria, self._urls.by_identifier(resource_type, identifier))).rows

    async def _search(
        self, criteria: SearchCriteria, address: str, accepted: _Omissions | None = None, parse: PageParser = parse_page
    ) -> SearchAnswer:
        """Fetch all pages, and hold every row against the search.

        What cannot be read goes to `accepted`. Where that is None, raises why pages cannot be reached, and `InvalidResponse` for
        resources: what was searched for may be among them.
        """
        omissions = _Omissions() if accepted is None else accepted
        selection = RowSelection(criteria)
        await self._fetch_rows(address, omissions, parse, selection)
        if omissions.cut_off is not None and accepted is None:
            raise omissions.cut_off
        if omissions.unreadable and accepted is None:
            names = ", ".join(omissions.unreadable)
            raise InvalidResponse(
                f"searching {criteria.resource_type} found {criteria.resource_type} {names}: its JSON is invalid"
            )
        answer = selection.answer() if len(selection) < _MANY_ROWS else await asyncio.to_thread(selection.answer)
        if not self._watch.record(criteria.kind, answer, self._clock.now()):
            _log.debug("search not filtered", action="exchange.search_not_filtered", search=criteria.kind.value)
        return answer

    async def _fetch_rows(self, address: str, omissions: _Omissions, parse: PageParser, selection: RowSelection) -> None:
        """Fetch all pages into `selection`; what cannot be read goes to `omissions`.

        Once a page was read, the search was answered: whatever keeps us from the next one only hides what follows. Raises what
        the first page raises, and what concerns every request.
        """
        resource_type, read_page = selection.criteria.resource_type, _selecting(parse, selection, omissions)
        page, url = await self._fetch_page(resource_type, address, read_page)
        seen, pages = {address, url}, 1
        while (link := fhir_http.next_link(page.bundle)) is not None:
            try:
                onward = self._next_page(link, url, seen, pages)
                page, url = await self._fetch_page(resource_type, onward, read_page)
            except Failure as failure:
                omissions.cut_off = _cut_off(resource_type, pages, failure)
                break
            seen.update((onward, url))
            pages += 1

    def _next_page(self, link: str, current: str, seen: Collection[str], pages: int) -> str:
        """The address behind a `next` link. Raises `ServiceUnavailable` where nothing can be behind it, or `ForeignLink`."""
        onward = resolve_next_page(self._base, current, link)
        if onward in seen:
            raise ServiceUnavailable("its `next` links lead in a circle")
        if pages >= _MAX_PAGES:
            raise ServiceUnavailable(f"it has more than {_MAX_PAGES} pages")
        return onward

    async def _fetch_page(self, resource_type: str, address: str, parse: PageParser = parse_page) -> tuple[BundlePage, str]:
        context = RequestContext(kind=RequestKind.SEARCH, description=f"searching {resource_type}")
        page, answer = await self._requests.get(context, address, parse)
        return page, answer.url

    async def _read_signed_in(self, context: RequestContext, address: str) -> tuple[Json, HttpResponse]:
        """Read once more while we are signed in: a 401 is about this resource alone then, if the token still opens others."""
        try:
            return await self._requests.get(context, address, parse_object)
        except AuthenticationRequired as exc:
            await self.check()
            if (await self._authenticator.credential()).generation != exc.generation:
                text = f"{context.description} was answered with 401, and its token has been replaced since"
                raise ServiceUnavailable(text) from exc
            raise ResourceNotReadable(f"{context.description} was answered with 401", status=401) from exc

    async def _to_stored(self, resource_type: str, body: Json) -> SavedResource:
        version = fhir_http.body_version(body)
        found = ResourceId(str(body["id"]))
        if version is None:
            return await self.read(resource_type, found)
        return SavedResource(resource_type=resource_type, id=found, version=version, body=body)


def _selecting(parse: PageParser, selection: RowSelection, omissions: _Omissions) -> PageParser:
    """Hold the rows of a page against the search where it is read: for a large one that is a thread."""

    def read(context: RequestContext, body: bytes) -> BundlePage:
        page = parse(context, body)
        selection.add(page.bundle)
        omissions.unreadable += page.unreadable(selection.criteria.resource_type)
        return page

    return read


def _cut_off(resource_type: str, pages: int, failure: Failure) -> TemporaryFailure:
    """The failure of a search of which so many pages were read. Raises `failure` where it is not about the next page alone."""
    is_asked_to_wait = isinstance(failure, ServiceUnavailable) and failure.retry_after
    if isinstance(failure, AuthenticationRequired | ServicePaused) or is_asked_to_wait:
        raise failure
    text = f"the search for {resource_type} is cut off after page {pages}: {failure}"
    return (ForeignLink if isinstance(failure, ForeignLink) else ServiceUnavailable)(text, issues=failure.issues)


def _filtered(criteria: SearchCriteria, answer: SearchAnswer) -> tuple[Json, ...]:
    if answer.foreign:
        raise UnfilteredSearch(criteria.kind, answer.rows, answer.foreign)
    return answer.rows


def _parse_stored(
    context: RequestContext, answer: HttpResponse, resource_type: str, sent: Json, *, created: bool = False
) -> SavedResource:
    """Read the response to a write: its body with the id and version of the headers.

    Where the body is missing or something else (an OperationOutcome, a page), what was sent stands for it, if the headers name
    the resource and its new version: a 2xx with both says that it was done.
    """
    location = fhir_http.parse_location(answer.headers.get("location"), resource_type)
    body = _parse_body(context, answer, resource_type)
    resource_id = fhir_http.body_id(sent if body is None else body) or (location[0] if location else None)
    version = fhir_http.resource_version(answer.headers, body, resource_type)
    if resource_id is None or version is None:
        raise invalid_response(context, f"something that is not a {resource_type} with id and version")
    found = sent if body is None else body
    return SavedResource(
        resource_type=resource_type, id=resource_id, version=version, body=found, created=created, echoed=body is None
    )


def _parse_body(context: RequestContext, answer: HttpResponse, resource_type: str) -> Json | None:
    try:
        body = parse_object(context, answer.body)
    except InvalidResponse:
        return None
    return body if fhir_http.is_resource_type(body, resource_type) else None
