"""What FHIR puts into bodies and headers around resources: versions, pages, access rights. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import unquote

from lab_agent.exchange.service import Json
from lab_agent.fhir.access_rights import access_rights
from lab_agent.fhir.elements import code_of, items_of, object_of, objects_of, text_of, word_of
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier

_ETAG_PATTERN = re.compile(r'(?:W/)?"([^"]+)"')
_CODED_PATTERN = re.compile(r"(.+?)(?:--|[-;.])(?:gzip|br|deflate|zstd)", re.IGNORECASE)
"""The version to which a gateway has added how it compresses answers."""
_RIGHT_PATTERN = re.compile(r"(?:.*/)?security/([A-Za-z]+)/?")
"""The system of a right in full: `{base_url}security/<right>` (interface: Authentication 8)."""
_LOCATION_PATTERN = re.compile(r"/([A-Za-z]+)/([^/?#]+)(?:/_history/([^/?#]+))?/?$")


def etag_version(etag: str | None) -> str | None:
    """Version in an ETag header, weak (`W/"<version>"`) or strong."""
    found = _ETAG_PATTERN.fullmatch((etag or "").strip())
    return found.group(1) if found else None


def resource_version(headers: Mapping[str, str], body: Json | None, resource_type: str) -> str | None:
    """The version of a resource as the service itself names it: in the body, else in Location, else in the ETag.

    A gateway that compresses answers also renames their ETags: `W/"3--gzip"`, which If-Match must not say.
    """
    location = parse_location(headers.get("location"), resource_type)
    named = (body_version(body) if body is not None else None) or (location[1] if location else None)
    etag = etag_version(headers.get("etag"))
    coded = _CODED_PATTERN.fullmatch(etag or "")
    return named or (coded.group(1) if coded else etag)


def if_match(version: str) -> str:
    """Value of the header If-Match (interface: Update)."""
    return f'W/"{version}"'


def body_version(body: Json) -> str | None:
    """`meta.versionId` of a resource."""
    return word_of((object_of(body.get("meta")) or {}).get("versionId"))


def body_id(body: Json) -> ResourceId | None:
    """`id` of a resource."""
    found = word_of(body.get("id"))
    return None if found is None else ResourceId(found)


def parse_location(location: str | None, resource_type: str) -> tuple[ResourceId, str | None] | None:
    """Id and version in a Location header, for services that respond to a create without the resource."""
    found = _LOCATION_PATTERN.search(location or "")
    if found is None or found.group(1).lower() != resource_type.lower():
        return None
    return ResourceId(unquote(found.group(2))), found.group(3)


def next_link(bundle: Json) -> str | None:
    """Address of the next page; None where there is none, and empty where nobody can tell: it may be any link without a relation,
    has no address, or there are several.
    """
    found = {_next_address(object_of(link)) for link in items_of(bundle.get("link")) if link}
    found.discard(None)
    return None if not found else found.pop() if len(found) == 1 else ""


def _next_address(link: Json | None) -> str | None:
    relation = None if link is None else code_of(link.get("relation"))
    if link is None or relation is None:
        return ""
    return (text_of(link.get("url")) or "") if relation == "next" else None


def is_resource_type(body: Json, resource_type: str) -> bool:
    """Whether a resource has this type, in any case."""
    return code_of(body.get("resourceType")) == resource_type.lower()


def deduplicate(resources: Iterable[Json]) -> tuple[Json, ...]:
    """Keep the last copy of each resource: pages shift while they are read."""
    kept: dict[object, Json] = {}
    for number, resource in enumerate(resources):
        kept[body_id(resource) or number] = resource
    return tuple(kept.values())


def with_security(body: Json, mode: Literal["as_read", "short", "omit"]) -> Json:
    """The body with its access rights as `exchange.put_security` wants them in a PUT."""
    meta = object_of(body.get("meta"))
    if mode == "as_read" or meta is None or "security" not in meta:
        return body
    if mode == "omit":
        return {**body, "meta": {key: value for key, value in meta.items() if key != "security"}}
    short = [_shorten_system(entry) for entry in items_of(meta["security"])]
    return {**body, "meta": {**meta, "security": [each for n, each in enumerate(short) if each not in short[:n]]}}


def _shorten_system(entry: Any) -> Any:
    """The entry with the short name of its right; a security label that is no right of the service stays as it is (law 4)."""
    system = entry.get("system") if isinstance(entry, Mapping) else None
    found = _RIGHT_PATTERN.fullmatch(system) if isinstance(system, str) else None
    return {**entry, "system": found.group(1)} if found else entry


def build_binary(content: bytes, content_type: str, readers: Collection[str], own_guid: str | None = None) -> Json:
    """Make a Binary (FHIR STU3) that the `readers` (counterparty guids) may read; short system names, as in requests."""
    return {
        "resourceType": "Binary",
        "meta": {"security": list(access_rights(readers, own_guid))},
        "contentType": content_type,
        "content": base64.b64encode(content).decode("ascii"),
    }


def with_tag(body: Json, tag: Identifier) -> Json:
    """The resource with a tag, by which it can be searched."""
    return {**body, "meta": {**body.get("meta", {}), "tag": [{"system": tag.system, "code": tag.value}]}}


def has_tag(body: Json, tag: Identifier) -> bool:
    """Whether a resource has this tag."""
    tags = objects_of((object_of(body.get("meta")) or {}).get("tag"))
    return any(each.get("system") == tag.system and each.get("code") == tag.value for each in tags)


def document_content(body: bytes, document: ResourceId) -> bytes:
    """The document in an answer: its bytes, or the `content` of the Binary resource of this id."""
    try:
        found = exact_json.loads_large(body)
    except DataInvalidError:
        return body
    if not isinstance(found, Mapping) or not is_resource_type(found, "Binary") or body_id(found) != document:
        return body
    try:
        return base64.b64decode(text_of(found.get("content", found.get("data"))) or "", validate=True)
    except ValueError:
        return body
