"""Implements the port `Exchange` over HTTP (interface: Endpoints)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus

import structlog
from typing_extensions import override

from lab_agent.exchange import fhir_http
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.bundle_pages import find_foreign_links, parse_page, parse_page_of_ids
from lab_agent.exchange.paged_search import Omissions, PagedSearch
from lab_agent.exchange.requests import AuthorizedRequests
from lab_agent.exchange.responses import RequestContext, RequestKind, invalid_response, is_page, parse_object
from lab_agent.exchange.search_criteria import SearchAnswer, SearchCriteria, found_rows
from lab_agent.exchange.service import AnswersWithheld, Exchange, Json, SavedResource, SearchKind, ServiceClock, UnfilteredSearch
from lab_agent.exchange.urls import UrlTemplates, if_none_exist_query
from lab_agent.exchange.write_answers import Find, find_created, parse_saved, raise_if_updated
from lab_agent.fhir.received_order import ResourceRef
from lab_agent.queue.jobs import ORDER_TASK_CODE, TASK_REQUESTED
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.shared.errors import (
    AnswerTooLarge,
    AuthenticationRequired,
    Failure,
    ForeignLink,
    InvalidResponse,
    OutcomeUnknown,
    ResourceNotReadable,
    SearchNotSupported,
    ServiceRejected,
    ServiceUnavailable,
    TemporaryFailure,
)
from lab_agent.shared.http_client import HttpClient, HttpOptions, HttpResponse
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.metrics import CallObserver, ignore
from lab_agent.shared.values import Identifier

_NO_SEARCH_MEMORY = timedelta(hours=1)

_log = structlog.get_logger(__name__)


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
        self._searches = PagedSearch(self._base, self._requests, self._clock, self.read)
        self._no_questionnaire_search_until: datetime | None = None
        self._contract_ids: dict[str, tuple[ResourceId, ...]] = {}
        self._says_created: set[str] = set()
        """Types of resources of which the service has said that it created one; others it may answer with a mere 200."""
        self._order_omissions = Omissions()

    @override
    async def requested_order_tasks(self) -> tuple[Json, ...]:
        criteria = SearchCriteria(kind=SearchKind.ORDER_TASKS, resource_type="Task", status=TASK_REQUESTED, code=ORDER_TASK_CODE)
        omissions = Omissions()
        answer = await self._searches.run(criteria, self._urls.order_tasks(), omissions, parse_page_of_ids)
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
        return _filtered(criteria, await self._searches.run(criteria, self._urls.line_tasks(order_task)))

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
        named = body if body.get("id") == resource_id else {**body, "id": resource_id}
        return SavedResource(resource_type=resource_type, id=resource_id, version=version, body=named)

    @override
    async def create(self, resource_type: str, body: Json, *, if_none_exist: Identifier | None = None) -> SavedResource:
        """`created` is uncertain only for a 200 to a conditional create, and False then.

        A service that has answered 201 to one of the same type tells the two apart.
        """
        return await self._create(
            resource_type, body, if_none_exist, None if if_none_exist is None else lambda: self.find(resource_type, if_none_exist)
        )

    async def _create(self, resource_type: str, body: Json, if_none_exist: Identifier | None, find: Find | None) -> SavedResource:
        """Create a resource; `find` finds it again where the service says that it did not, and names no error."""
        context = RequestContext(
            kind=RequestKind.WRITE, description=f"POST {resource_type}", if_none_exist=if_none_exist is not None
        )
        headers = {} if if_none_exist is None else {"If-None-Exist": if_none_exist_query(if_none_exist)}
        try:
            answer = await self._requests.write(context, "POST", self._urls.create(resource_type), headers, body)
        except ServiceRejected as rejection:
            return await find_created(rejection, find)
        if answer.status == HTTPStatus.CREATED:
            self._says_created.add(resource_type)
        created = answer.status == HTTPStatus.CREATED or if_none_exist is None
        saved = await self._requests.parse(
            answer.body, lambda _: parse_saved(context, answer, resource_type, body, created=created)
        )
        return replace(saved, existed=not created and resource_type in self._says_created)

    @override
    async def update(self, resource_type: str, resource_id: ResourceId, body: Json, *, version: str) -> SavedResource:
        context = RequestContext(kind=RequestKind.WRITE, description=f"PUT {resource_type}", if_match=True)
        sent = fhir_http.with_security(body, self._settings.put_security)
        address = self._urls.update(resource_type, resource_id)
        try:
            answer = await self._requests.write(context, "PUT", address, {"If-Match": fhir_http.if_match(version)}, sent)
        except ServiceRejected as rejection:
            await raise_if_updated(rejection, version, lambda: self.read(resource_type, resource_id))
            raise
        as_sent = {**sent, "id": resource_id}
        saved = await self._requests.parse(answer.body, lambda _: parse_saved(context, answer, resource_type, as_sent))
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
        if name is None or self._settings.document_search != "tag":
            return await self.create("Binary", body)
        return await self._create(
            "Binary", fhir_http.with_tag(body, self._document_tag(name)), None, lambda: self._find_documents(name)
        )

    async def _find_documents(self, name: str) -> tuple[SavedResource, ...]:
        found = await self.find_document(name)
        return () if found is None else (found,)

    @override
    async def find_document(self, name: str) -> SavedResource | None:
        if self._settings.document_search == "off":
            return None
        tag = self._document_tag(name)
        criteria = SearchCriteria(kind=SearchKind.BY_TAG, resource_type="Binary", tag=tag)
        try:
            answer = await self._searches.run(criteria, self._urls.by_tag("Binary", tag))
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
        if is_page(body) and "html" not in content_type:
            raise invalid_response(context, "an HTML page in place of the document")
        return await self._requests.parse(body, lambda found: fhir_http.document_content(found, document))

    @override
    async def check(self) -> None:
        """Fetch one page of new orders."""
        await self._searches.fetch_page("Task", self._urls.order_tasks())

    @override
    async def answers(self, task: ResourceId | None = None) -> bool:
        kind, what = (RequestKind.SEARCH, "searching") if task is None else (RequestKind.READ, "GET")
        context = RequestContext(kind=kind, description=f"{what} Task")
        try:
            if task is None:
                await self._requests.get_once(context, self._urls.order_tasks(), parse_page)
            else:
                await self._requests.get_once(context, self._urls.read("Task", task), parse_object)
        except AnswerTooLarge:
            return True
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
            page, _ = await self._searches.fetch_page("Task", UrlTemplates(self._settings.paths, page_size=1).order_tasks())
        except ServiceRejected:  # it does not know `_count`
            page, _ = await self._searches.fetch_page("Task", self._urls.order_tasks())
        return find_foreign_links(self._base, page.bundle)

    @override
    async def altered_etag(self) -> str | None:
        """A Task of the first page is read, or else a configured contract; one that cannot be read shows nothing."""
        page, _ = await self._searches.fetch_page("Task", self._urls.order_tasks())
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
        etag = fhir_http.etag_version(answer.headers.get("etag"))
        version = fhir_http.resource_version(answer.headers, body, resource_type)
        return f'"{etag}" for version {version}' if etag and version and etag != version else None

    @override
    def service_clock(self) -> ServiceClock | None:
        return self._requests.clocks.read()

    @override
    def take_search_findings(self) -> Mapping[SearchKind, bool]:
        return self._searches.watch.take()

    async def _responses_about(self, procedure_request: ResourceId) -> tuple[Json, ...]:
        criteria = SearchCriteria(
            kind=SearchKind.QUESTIONNAIRES,
            resource_type="QuestionnaireResponse",
            subject=ResourceRef("ProcedureRequest", procedure_request),
        )
        address = self._urls.questionnaire_responses(procedure_request)
        try:
            answer = await self._searches.run(criteria, address)
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
        return (await self._searches.run(criteria, self._urls.by_identifier(resource_type, identifier))).rows

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


def _filtered(criteria: SearchCriteria, answer: SearchAnswer) -> tuple[Json, ...]:
    if answer.foreign:
        raise UnfilteredSearch(criteria.kind, answer.rows, answer.foreign)
    return answer.rows
