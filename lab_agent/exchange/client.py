"""The exchange service behind the port `Exchange` (interface: Endpoints)."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from lab_agent.domain.ids import ResourceId
from lab_agent.domain.values import Identifier
from lab_agent.errors import NotOffered, NotReadable, ServiceUnavailable, SignInNeeded
from lab_agent.exchange import wire
from lab_agent.exchange.calls import Calls
from lab_agent.exchange.outcomes import Asked, Kind, content, unreadable
from lab_agent.exchange.paths import Paths, condition, next_page
from lab_agent.exchange.tokens import Authenticator
from lab_agent.http import Answer, HttpClient, HttpOptions
from lab_agent.metrics import Heard, unheard
from lab_agent.ports.exchange import Json, Saved
from lab_agent.settings.exchange import ExchangeSettings

_MOST_PAGES = 1000

_log = structlog.get_logger(__name__)


def http_options(settings: ExchangeSettings) -> HttpOptions:
    """Options of the HTTP client that serves these settings."""
    return HttpOptions(
        timeout=settings.timeout,
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_response=settings.max_response,
        max_connections=settings.max_concurrency + 2,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
    )


class ExchangeClient:
    """Implements `lab_agent.ports.exchange.Exchange`. `heard` hears of every call."""

    def __init__(self, settings: ExchangeSettings, http: HttpClient, tokens: Authenticator, *, heard: Heard = unheard) -> None:
        self._settings = settings
        self._base = settings.base_url
        self._paths = Paths(settings.paths, page_size=settings.page_size)
        self._calls = Calls(self._base, http, tokens, max_concurrency=settings.max_concurrency, heard=heard)
        self._questionnaires_offered = settings.questionnaire_search == "auto"
        self._contracts: dict[str, tuple[ResourceId, ...]] = {}

    async def requested_order_tasks(self) -> tuple[Json, ...]:
        """See the port."""
        return await self._search("Task", self._paths.order_tasks())

    async def line_tasks(self, order_task: ResourceId) -> tuple[Json, ...]:
        """See the port."""
        return await self._search("Task", self._paths.line_tasks(order_task))

    async def questionnaire_responses(self, procedure_requests: Collection[ResourceId]) -> tuple[Json, ...] | None:
        """See the port. A refusal is remembered as "not offered" for as long as this client lives."""
        found: list[Json] = []
        for procedure_request in procedure_requests:
            if not self._questionnaires_offered:
                return None
            try:
                found += await self._search("QuestionnaireResponse", self._paths.questionnaires(procedure_request))
            except NotOffered as exc:
                self._questionnaires_offered = False
                _log.warning("the service offers no search of answers", action="exchange.not_offered", status=exc.status)
        return wire.once_each(found) if self._questionnaires_offered else None

    async def contract_ids(self, code: str) -> tuple[ResourceId, ...]:
        """See the port. That a contract is unknown is not kept: it may be made at any time."""
        if code not in self._contracts:
            identifier = Identifier(system=f"{self._settings.lab_codes_url}/contract", value=code)
            found = await self._search("Contract", self._paths.by_identifier("Contract", identifier))
            ids = tuple(contract for body in found if (contract := wire.body_id(body)) is not None)
            if not ids:
                return ()
            self._contracts[code] = ids
        return self._contracts[code]

    async def read(self, resource_type: str, resource_id: ResourceId) -> Saved:
        """See the port."""
        asked = Asked(kind=Kind.READ, what=f"GET {resource_type}")
        try:
            body, answer = await self._calls.get(asked, self._paths.read(resource_type, resource_id))
        except SignInNeeded as exc:
            await self.check()  # signed in after all: then the 401 is about this resource
            raise NotReadable(f"{asked.what} was answered with 401", status=401) from exc
        version = wire.etag_version(answer.headers.get("etag")) or wire.body_version(body)
        if not wire.is_a(body, resource_type) or wire.body_id(body) not in {None, resource_id} or version is None:
            raise unreadable(asked, f"something that is not that {resource_type} with a version")
        return Saved(resource_type=resource_type, id=resource_id, version=version, body=body)

    async def create(self, resource_type: str, body: Json, *, if_none_exist: Identifier | None = None) -> Saved:
        """See the port. `created` is doubtful only for a 200 to a conditional create, and is False then."""
        asked = Asked(kind=Kind.WRITE, what=f"POST {resource_type}", if_none_exist=if_none_exist is not None)
        headers = {} if if_none_exist is None else {"If-None-Exist": condition(if_none_exist)}
        answer = await self._calls.write(asked, "POST", self._paths.create(resource_type), headers, body)
        created = answer.status == 201 or if_none_exist is None
        return _saved(asked, answer, resource_type, body, created=created)

    async def update(self, resource_type: str, resource_id: ResourceId, body: Json, *, version: str) -> Saved:
        """See the port."""
        asked = Asked(kind=Kind.WRITE, what=f"PUT {resource_type}", if_match=True)
        sent = wire.with_security(body, self._settings.put_security)
        address = self._paths.update(resource_type, resource_id)
        answer = await self._calls.write(asked, "PUT", address, {"If-Match": wire.if_match(version)}, sent)
        saved = _saved(asked, answer, resource_type, {**sent, "id": resource_id})
        if saved.id != resource_id:
            raise unreadable(asked, f"another {resource_type}")
        return saved

    async def find(self, resource_type: str, identifier: Identifier) -> tuple[Saved, ...]:
        """See the port. A match without a version is read once more, for its ETag."""
        found = await self._search(resource_type, self._paths.by_identifier(resource_type, identifier))
        return tuple([await self._found(resource_type, body) for body in found if wire.body_id(body)])

    async def upload_document(self, content: bytes, content_type: str, *, readers: tuple[str, ...]) -> Saved:
        """See the port."""
        return await self.create("Binary", wire.binary(content, content_type, readers))

    async def check(self) -> None:
        """See the port: one page of new orders."""
        await self._page("Task", self._paths.order_tasks())

    async def _search(self, resource_type: str, address: str) -> tuple[Json, ...]:
        """All pages. A `next` link that was followed before ends the search: every page was seen."""
        found: list[Json] = []
        seen: set[str] = set()
        onward: str | None = address
        while onward is not None and onward not in seen:
            if len(seen) >= _MOST_PAGES:
                raise ServiceUnavailable(f"a search of {resource_type} has more than {_MOST_PAGES} pages")
            seen.add(onward)
            bundle, url = await self._page(resource_type, onward)
            found += wire.matches(bundle, resource_type)
            link = wire.next_link(bundle)
            onward = None if link is None else next_page(self._base, url, link)
        return wire.once_each(found)

    async def _page(self, resource_type: str, address: str) -> tuple[Json, str]:
        asked = Asked(kind=Kind.SEARCH, what=f"searching {resource_type}")
        bundle, answer = await self._calls.get(asked, address)
        if not wire.is_a(bundle, "Bundle"):
            raise unreadable(asked, "something that is no Bundle")
        return bundle, answer.url

    async def _found(self, resource_type: str, body: Json) -> Saved:
        version = wire.body_version(body)
        found = ResourceId(str(body["id"]))
        if version is None:
            return await self.read(resource_type, found)
        return Saved(resource_type=resource_type, id=found, version=version, body=body)


def _saved(asked: Asked, answer: Answer, resource_type: str, sent: Json, *, created: bool = False) -> Saved:
    """Read the answer to a write: its body, or what was sent where there is none, with the id and the version of the headers."""
    place = wire.located(answer.headers.get("location"))
    body = content(asked, answer.body) if answer.body.strip() else sent
    if not wire.is_a(body, resource_type):
        raise unreadable(asked, f"something that is no {resource_type}")
    resource_id = wire.body_id(body) or (place[0] if place else None)
    version = wire.etag_version(answer.headers.get("etag")) or (answer.body and wire.body_version(body)) or (place and place[1])
    if resource_id is None or not version:
        raise unreadable(asked, f"a {resource_type} without id or version")
    return Saved(resource_type=resource_type, id=resource_id, version=str(version), body=body, created=created)
