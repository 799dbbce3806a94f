"""A page of a search, read entry by entry: one that cannot be read spoils only itself (law 9). Pure.

A page is read at once as long as it is valid JSON, a large one entry by entry. Where it is not, its entries are separated by
their brackets alone, whatever a string or number in one of them contains (a lone surrogate, a raw control character, NaN, 100,000
digits); where these do not match either, by their beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lab_agent.exchange.fhir_http import body_id, is_resource_type
from lab_agent.exchange.responses import (
    RequestContext,
    describe_text,
    invalid_response,
    outcome_error,
    parse_issues,
    parse_object,
)
from lab_agent.exchange.service import Json
from lab_agent.fhir.elements import code_of, items_of, object_of, objects_of, only_one, text_of
from lab_agent.shared import exact_json
from lab_agent.shared.errors import AnswerTooLarge, DataInvalidError, ForeignOrigin, OutcomeIssue, ServiceUnavailable
from lab_agent.shared.url_origin import Origin, origin_of

UNNAMED = "?"
"""Stands for the id of a resource that cannot be told from its text."""
_NAMING_FIELDS = ("resourceType", "id", "status", "code")
"""Fields by which a row of a search for order-level Tasks is held against the search."""
_AGE_FIELDS = ("versionId", "lastUpdated")
"""Fields of `meta` that say which of two copies is the newer one."""
_ASIDE = frozenset({"include", "outcome"})
"""What an entry is that is no match (FHIR STU3, SearchEntryMode)."""
_TOKEN_PATTERN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]', re.DOTALL)
_ENTRIES_PATTERN = re.compile(rb'"entry"\s*:\s*\[')
_ENTRY_PATTERN = re.compile(rb'[\[,]\s*(\{\s*"(?:fullUrl|resource|search)"\s*:)')
_END_PATTERN = re.compile(rb'\](?:\s*,\s*"link"\s*:\s*\[[^\[\]]*\])?\s*\}\s*\Z')
_ID_PATTERN = re.compile(r"[A-Za-z0-9.\-]{1,64}")
_DIVIDER = exact_json.ArrayDivider("entry", ("resourceType", "link", "total"))
_NAMED_WITHIN = 1024 * 1024
"""Bytes of an unreadable entry in which its type and id are looked for."""
_SHORTEST_NAMED = len(b'{"resource":{"id":"1"}}')


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """An entry that cannot be read; `resource_type` is empty and `id` is `UNNAMED` where it does not tell."""

    resource_type: str
    id: str


@dataclass(frozen=True, slots=True)
class BundlePage:
    """A Bundle with the entries that can be read, and those that cannot."""

    bundle: Json
    unreadable_entries: tuple[UnreadableEntry, ...] = ()

    def unreadable(self, resource_type: str) -> list[str]:
        """Ids of unreadable entries that are of this type, or may be."""
        return [each.id for each in self.unreadable_entries if each.resource_type.lower() in {"", resource_type.lower()}]


PageParser = Callable[[RequestContext, bytes], BundlePage]


def parse_page(context: RequestContext, body: bytes) -> BundlePage:
    """Read a page. Raises `ServiceUnavailable` for what is no Bundle, or was cut off.

    An OperationOutcome in its place that says that nothing was found is an empty page.
    """
    return _parse(context, body, _whole)


def parse_page_of_ids(context: RequestContext, body: bytes) -> BundlePage:
    """Read a page as `parse_page` does, and keep of each resource only what names it: there may be thousands."""
    return _parse(context, body, _names_of)


def _parse(context: RequestContext, body: bytes, keep: Callable[[Json], Json]) -> BundlePage:
    text = exact_json.strip_byte_order_mark(body)
    try:
        page = _parse_valid(context, text, keep)
    except exact_json.TooManyValues as exc:
        found = "more JSON values than are read at once; set `exchange.page_size`"
        raise AnswerTooLarge(f"{context.description} was answered with {found}") from exc
    except (ServiceUnavailable, DataInvalidError):
        parts = _split_entries(text) or _split_at_beginnings(text)
        if parts is None:
            raise invalid_response(context, describe_text(text)) from None
        page = _parse_entries(parse_object(context, parts[0]), parts[1], keep)
    if is_resource_type(page.bundle, "OperationOutcome"):
        return _read_outcome(context, text)
    if not is_resource_type(page.bundle, "Bundle"):
        raise invalid_response(context, "something that is not a Bundle")
    return page


def _read_outcome(context: RequestContext, text: bytes) -> BundlePage:
    """An empty page for an OperationOutcome that says that nothing was found; any other one is an error, whatever its status."""
    issues = parse_issues(text)
    if issues and all(_is_nothing_found(each) for each in issues):
        return BundlePage({"resourceType": "Bundle", "type": "searchset"})
    raise outcome_error(context, issues)


def _is_nothing_found(issue: OutcomeIssue) -> bool:
    return issue.code == "not-found" or (issue.severity, issue.code) == ("information", "informational")


def _parse_valid(context: RequestContext, text: bytes, keep: Callable[[Json], Json]) -> BundlePage:
    if len(text) >= exact_json.LARGE:
        return _parse_entries(*_DIVIDER.divide(text), keep)
    bundle = parse_object(context, text)
    return _parse_entries(bundle, items_of(bundle.get("entry")), keep)


def _whole(entry: Json) -> Json:
    return entry


def _names_of(entry: Json) -> Json:
    """An entry of a search with the naming fields of its resource."""
    resource = entry.get("resource")
    if not isinstance(resource, Mapping):
        return entry
    kept = {key: resource[key] for key in _NAMING_FIELDS if key in resource}
    meta = object_of(resource.get("meta")) or {}
    age = {key: meta[key] for key in _AGE_FIELDS if key in meta}
    return {"resource": {**kept, "meta": age} if age else kept, "search": entry.get("search")}


def entry_resource(entry: Json) -> Json | None:
    """The resource of an entry that is a match; None where there is none, or the entry is only included."""
    resource = entry.get("resource")
    return resource if isinstance(resource, Mapping) and not is_aside(entry) else None


def is_aside(entry: Json) -> bool:
    """Whether an entry says that it is no match of the search."""
    search = only_one(entry.get("search"))
    return code_of(search.get("mode") if isinstance(search, Mapping) else search) in _ASIDE


def find_foreign_links(base: str, bundle: Json) -> dict[str, str]:
    """Absolute addresses in a page that lead away from the origin of `base`: relation, or `fullUrl`, to their origin."""
    links = [*_named_urls(bundle.get("link"), "relation", "url"), *_named_urls(bundle.get("entry"), "", "fullUrl")]
    found = {relation: origin for relation, url in links if (origin := _origin(url)) is not None}
    return {relation: str(origin) for relation, origin in found.items() if origin != origin_of(base)}


def _named_urls(listed: object, name: str, key: str) -> Iterator[tuple[str, str]]:
    for each in objects_of(listed):
        if isinstance(url := each.get(key), str):
            yield str(each.get(name, "")) if name else key, url


def _origin(url: str) -> Origin | None:
    try:
        return origin_of(url)
    except ForeignOrigin:  # relative, or no address of the web (`urn:uuid:…`)
        return None


def _parse_entries(bundle: Json, entries: Iterable[Any], keep: Callable[[Json], Json]) -> BundlePage:
    """The page with these entries, each as text or as it was read."""
    readable: list[Json] = []
    unreadable: list[UnreadableEntry] = []
    for each in entries:
        try:
            entry = _read_entry(exact_json.loads_large(each) if isinstance(each, bytes) else each)
        except DataInvalidError:
            entry = _name_entry(each)
        if isinstance(entry, UnreadableEntry):
            unreadable.append(entry)
        else:
            readable.append(keep(entry))
    return BundlePage({**bundle, "entry": readable}, tuple(unreadable))


def _read_entry(found: Any) -> Json | UnreadableEntry:
    """An entry with its resource as one object of a type, and its id as a text; nobody can tell what any other one is."""
    entry = object_of(found)
    if entry is None:
        return UnreadableEntry(resource_type="", id=UNNAMED)
    if entry.get("resource") is None or is_aside(entry):
        return entry
    resource = object_of(entry["resource"]) or {}
    resource_type, resource_id = text_of(resource.get("resourceType")), body_id(resource)
    if resource_type is None or (resource_id is None and is_resource_type(resource, "Task")):
        return UnreadableEntry(resource_type=plain_name(resource_type, ""), id=plain_name(resource_id, UNNAMED))
    same = resource is entry["resource"] and resource.get("id") == resource_id
    return entry if same else {**entry, "resource": {**resource, "id": resource_id} if resource_id else resource}


def plain_name(name: str | None, other: str) -> str:
    """A name that is one: any other text may name a patient, and is not shown."""
    return name if name is not None and _ID_PATTERN.fullmatch(name) else other


def _tokens(text: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Strings and signs with their start and end, and the depth of brackets in which they stand; brackets belong inside."""
    depth = 0
    for found in _TOKEN_PATTERN.finditer(text):
        sign = found.group()
        depth += sign in {b"{", b"["}
        yield sign, found.start(), found.end(), depth
        depth -= sign in {b"}", b"]"}
    yield b"", len(text), len(text), depth


def _split_entries(text: bytes) -> tuple[bytes, list[bytes]] | None:
    """The Bundle without its entries, and the text of each; None if the brackets do not match or there is no `entry`."""
    begin = end = start = -1
    entries: list[bytes] = []
    name, depth = b"", 0
    for sign, at, after, depth in _tokens(text):
        if begin < 0 and sign == b"[" and depth == 2 and name == b'"entry"':
            begin = start = after
        elif begin >= 0 > end and depth == 2 and sign in {b",", b"]"}:
            entries.append(text[start:at])
            start, end = after, at if sign == b"]" else -1
        elif depth == 1 and sign.startswith(b'"'):
            name = sign
    if depth or end < 0:
        return None
    return text[:begin] + text[end:], [each for each in entries if each.strip()]


def _split_at_beginnings(text: bytes) -> tuple[bytes, list[bytes]] | None:
    """The same where the brackets do not match, or a string does not end: an entry goes up to where the next one begins.

    None where the page does not end with its entries, or with its links after them: it was cut off, or nobody can tell.
    """
    opening = _ENTRIES_PATTERN.search(text)
    starts = [found.start(1) for found in _ENTRY_PATTERN.finditer(text, opening.end() - 1)] if opening else []
    if opening is None or not starts:
        return None
    entries = [text[start:end].rstrip().removesuffix(b",") for start, end in pairwise([*starts, len(text)])]
    end = next((after for sign, _, after, depth in _tokens(entries[-1]) if sign == b"}" and depth == 1), None)
    if end is None or not entries[-1][end:].lstrip().startswith(b"]"):
        tail = _END_PATTERN.search(entries[-1])
        if tail is None or b'"link"' in entries[-1][: tail.start()]:
            return None
        return text[: opening.end()] + tail.group(), entries
    return text[: opening.end()] + entries[-1][end:], [*entries[:-1], entries[-1][:end]]


def _name_entry(text: bytes) -> UnreadableEntry:
    """Find the type and id of the resource in an entry that cannot be read; they stand near its beginning."""
    if len(text) < _SHORTEST_NAMED:  # there may be as many as the page has signs
        return UnreadableEntry(resource_type="", id=UNNAMED)
    fields: dict[bytes, str] = {}
    names = {1: b"", 2: b""}
    before = b""
    for sign, _, _, depth in _tokens(text[:_NAMED_WITHIN]):
        if sign.startswith(b'"') and depth in names:
            if before != b":":
                names[depth] = sign
            elif depth == 2 and names[1] == b'"resource"':
                fields.setdefault(names[2], sign[1:-1].decode("ascii", "replace"))
        before = sign
    found_id, found_type = fields.get(b'"id"', ""), fields.get(b'"resourceType"', "")
    return UnreadableEntry(resource_type=plain_name(found_type, ""), id=plain_name(found_id, UNNAMED))
