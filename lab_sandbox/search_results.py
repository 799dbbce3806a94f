"""Search results as an STU3 server keeps them: remembered for a while, and paged by links of its own.

Which resources were found may be out of date; each is shown as it is now, and left out once it is deleted.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Final
from urllib.parse import urlencode
from uuid import uuid4

from lab_sandbox.config import Counterparty, SandboxConfig
from lab_sandbox.errors import HttpError
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import ResourceStore, StoredResource
from lab_sandbox.resources import ResourceService
from lab_sandbox.search import SearchQuery

MAX_RESULTS: Final = 10_000
"""Results of one search; there are no more."""
MAX_SEARCHES: Final = 1000
"""Remembered searches; the oldest is forgotten first."""

_SearchKey = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class RememberedSearch:
    """The results of one search for one caller, and until when they serve the same search again."""

    id: str
    caller: str
    kind: str
    refs: tuple[Ref, ...]
    reusable_until: datetime


class SearchResults:
    """The searches of the last minutes."""

    def __init__(self, store: ResourceStore, resources: ResourceService, config: SandboxConfig) -> None:
        self._store = store
        self._resources = resources
        self._max_age = config.search_age_seconds
        self._rng = Random(config.rules.seed)  # noqa: S311 - repeatable by design
        self._by_id: OrderedDict[str, RememberedSearch] = OrderedDict()
        self._latest: dict[_SearchKey, str] = {}

    def search(self, query: SearchQuery, caller: Counterparty, *, fresh: bool = False) -> RememberedSearch:
        """The same search of the same caller as remembered, or a new one; `fresh` is always a new one."""
        key = (caller.guid, query.type, _criteria(query.raw))
        known = self._by_id.get(self._latest.get(key, ""))
        if known is not None and not fresh and self._resources.now() < known.reusable_until:
            return known
        found = self._store.find(
            query.type, query.criteria, lambda access: self._resources.allows(access, "read", caller), limit=MAX_RESULTS
        )
        until = self._resources.now() + timedelta(seconds=self._rng.uniform(0, self._max_age))
        made = RememberedSearch(str(uuid4()), caller.guid, query.type, tuple(one.ref for one in found), until)
        self._remember(key, made)
        return made

    def resume(self, search_id: str, caller: Counterparty) -> RememberedSearch:
        """The search of a page link; `HttpError` (410) if it is forgotten, or another caller's."""
        found = self._by_id.get(search_id)
        if found is None or found.caller != caller.guid:
            raise HttpError.of(410, "not-found", f"_getpages: the search {search_id} does not exist and may have expired")
        return found

    def page(self, search: RememberedSearch, offset: int, count: int) -> list[StoredResource]:
        """The results at these positions as they are now."""
        found = (self._store.get(ref) for ref in search.refs[offset : offset + count])
        return [one for one in found if one is not None]

    def _remember(self, key: _SearchKey, made: RememberedSearch) -> None:
        self._by_id[made.id], self._latest[key] = made, made.id
        while len(self._by_id) > MAX_SEARCHES:
            forgotten, _ = self._by_id.popitem(last=False)
            self._latest = {one: search_id for one, search_id in self._latest.items() if search_id != forgotten}


def page_link(address: str, search: RememberedSearch, offset: int, count: int) -> str:
    """The link to a page: it names the remembered search, and no criterion."""
    query = {"_getpages": search.id, "_getpagesoffset": offset, "_count": count, "_bundletype": "searchset"}
    return f"{address}fhir?{urlencode(query)}"


def _criteria(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(pair for pair in pairs if pair[0] not in {"_count", "_format"}))
