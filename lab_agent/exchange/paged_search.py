"""Fetches a search page by page, and holds every row against it; what cannot be read or reached is never left out in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

import structlog

from lab_agent.exchange import fhir_http
from lab_agent.exchange.bundle_pages import UNNAMED, BundlePage, PageParser, parse_page, plain_name
from lab_agent.exchange.requests import AuthorizedRequests
from lab_agent.exchange.responses import RequestContext, RequestKind
from lab_agent.exchange.search_criteria import RowSelection, SearchAnswer, SearchCriteria
from lab_agent.exchange.search_watch import SearchWatch
from lab_agent.exchange.service import SavedResource
from lab_agent.exchange.urls import resolve_next_page
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import (
    AuthenticationRequired,
    Failure,
    ForeignLink,
    InvalidResponse,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
    TemporaryFailure,
)
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.text import join_limited

_MAX_PAGES = 1000
_MANY_ROWS = 1000
_MAX_READ = 100
"""Resources of one search that are read by their ids, since copies of them contradict each other; the others are told."""
_GONE = frozenset({404, 410})

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Omissions:
    """What a search left out: the ids of resources that cannot be read, and why pages may be missing."""

    unreadable: list[str] = field(default_factory=list)
    cut_off: TemporaryFailure | None = None


@dataclass(frozen=True, slots=True)
class PagedSearch:
    """Searches at `base`. `read` reads one resource by its type and id."""

    base: str
    requests: AuthorizedRequests
    clock: Clock
    read: Callable[[str, ResourceId], Awaitable[SavedResource]]
    watch: SearchWatch = field(default_factory=SearchWatch)

    async def run(
        self, criteria: SearchCriteria, address: str, accepted: Omissions | None = None, parse: PageParser = parse_page
    ) -> SearchAnswer:
        """Fetch all pages, and hold every row against the search.

        What cannot be read goes to `accepted`. Where that is None, raises why pages cannot be reached, and `InvalidResponse` for
        resources: what was searched for may be among them.
        """
        omissions = Omissions() if accepted is None else accepted
        selection = RowSelection(criteria)
        await self._fetch_rows(address, omissions, parse, selection)
        if omissions.cut_off is not None and accepted is None:
            raise omissions.cut_off
        await self._settle(selection, omissions)
        if omissions.unreadable and accepted is None:
            found = f"{criteria.resource_type} {join_limited(dict.fromkeys(omissions.unreadable))}"
            raise InvalidResponse(f"searching {criteria.resource_type} found what cannot be read: {found}")
        answer = selection.answer() if len(selection) < _MANY_ROWS else await asyncio.to_thread(selection.answer)
        if not self.watch.record(criteria.kind, answer, self.clock.now()):
            _log.debug("search not filtered", action="exchange.search_not_filtered", search=criteria.kind.value)
        return answer

    async def fetch_page(self, resource_type: str, address: str, parse: PageParser = parse_page) -> tuple[BundlePage, str]:
        """One page, with the address that it came from. Raises what the port says."""
        context = RequestContext(kind=RequestKind.SEARCH, description=f"searching {resource_type}")
        page, answer = await self.requests.get(context, address, parse)
        return page, answer.url

    async def _fetch_rows(self, address: str, omissions: Omissions, parse: PageParser, selection: RowSelection) -> None:
        """Fetch all pages into `selection`; what cannot be read goes to `omissions`.

        Once a page was read, the search was answered: whatever keeps us from the next one only hides what follows. Raises what
        the first page raises, and what concerns every request.
        """
        resource_type, read_page = selection.criteria.resource_type, _selecting(parse, selection, omissions)
        page, url = await self.fetch_page(resource_type, address, read_page)
        seen, pages = {address, url}, 1
        while (link := fhir_http.next_link(page.bundle)) is not None:
            try:
                onward = self._next_page(link, url, seen, pages)
                page, url = await self.fetch_page(resource_type, onward, read_page)
            except Failure as failure:
                omissions.cut_off = _cut_off(resource_type, pages, failure)
                break
            seen.update((onward, url))
            pages += 1

    def _next_page(self, link: str, current: str, seen: Collection[str], pages: int) -> str:
        """The address behind a `next` link. Raises `ServiceUnavailable` where nothing can be behind it, or `ForeignLink`."""
        onward = resolve_next_page(self.base, current, link)
        if onward in seen:
            raise ServiceUnavailable("its `next` links lead in a circle")
        if pages >= _MAX_PAGES:
            raise ServiceUnavailable(f"it has more than {_MAX_PAGES} pages")
        return onward

    async def _settle(self, selection: RowSelection, omissions: Omissions) -> None:
        """Read what came in several copies, of which nobody can tell the newest. Raises what concerns every request."""
        resource_type = selection.criteria.resource_type
        contested = list(selection.contested)
        omissions.unreadable += [plain_name(each, UNNAMED) for each in contested[_MAX_READ:]]
        for resource in contested[:_MAX_READ]:
            try:
                selection.settle(resource, (await self.read(resource_type, resource)).body)
            except Failure as failure:
                if _concerns_every_request(failure):
                    raise
                selection.settle(resource, None)
                if not isinstance(failure, ServiceRejected) or failure.status not in _GONE:
                    omissions.unreadable.append(plain_name(resource, UNNAMED))


def _selecting(parse: PageParser, selection: RowSelection, omissions: Omissions) -> PageParser:
    """Hold the rows of a page against the search where it is read: for a large one that is a thread."""

    def read(context: RequestContext, body: bytes) -> BundlePage:
        page = parse(context, body)
        selection.add(page.bundle)
        omissions.unreadable += page.unreadable(selection.criteria.resource_type)
        return page

    return read


def _cut_off(resource_type: str, pages: int, failure: Failure) -> TemporaryFailure:
    """The failure of a search of which so many pages were read. Raises `failure` where it is not about the next page alone."""
    if _concerns_every_request(failure):
        raise failure
    text = f"the search for {resource_type} is cut off after page {pages}: {failure}"
    return (ForeignLink if isinstance(failure, ForeignLink) else ServiceUnavailable)(text, issues=failure.issues)


def _concerns_every_request(failure: Failure) -> bool:
    is_asked_to_wait = isinstance(failure, ServiceUnavailable) and bool(failure.retry_after)
    return isinstance(failure, AuthenticationRequired | ServicePaused) or is_asked_to_wait
