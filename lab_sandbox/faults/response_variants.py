"""Variants of responses, permitted and foreign ones, as pure functions from JSON to JSON."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from lab_sandbox.exact_json import Json, encode
from lab_sandbox.faults.plan import FaultRule, Poison
from lab_sandbox.references import Ref, respell_references

ResponseVariant = Callable[[Json, FaultRule, tuple[str, ...]], Json]


def lower_case_references(body: Json, _rule: FaultRule, own_addresses: tuple[str, ...]) -> Json:
    """`Task/1` -> `task/1`."""
    return _with_references(body, own_addresses, lambda ref: ref.key())


def canonical_references(body: Json, _rule: FaultRule, own_addresses: tuple[str, ...]) -> Json:
    """`task/1` -> `Task/1`."""
    return _with_references(body, own_addresses, lambda ref: f"{ref.type}/{ref.id}")


def absolute_references(body: Json, _rule: FaultRule, own_addresses: tuple[str, ...]) -> Json:
    """`task/1` -> `{base_url}fhir/Task/1`, with the address that the server listens on."""
    return _with_references(body, own_addresses, lambda ref: f"{own_addresses[-1]}fhir/{ref.type}/{ref.id}")


def foreign_references(body: Json, rule: FaultRule, own_addresses: tuple[str, ...]) -> Json:
    """`task/1` -> the same at a foreign origin, which must never get a token."""
    return _with_references(body, own_addresses, lambda ref: f"{rule.origin}/fhir/{ref.type}/{ref.id}")


def foreign_next(body: Json, rule: FaultRule, own_addresses: tuple[str, ...]) -> Json:
    """A search with a `next` link to a foreign origin."""
    if body.get("type") != "searchset":
        return body
    links = [one for one in body.get("link", []) if one.get("relation") != "next"]
    old = next(
        (one["url"] for one in body.get("link", []) if one.get("relation") == "next"), f"{own_addresses[-1]}fhir/Task?_after=1"
    )
    foreign, parts = urlsplit(rule.origin), urlsplit(old)
    url = urlunsplit(parts._replace(scheme=foreign.scheme, netloc=foreign.netloc))
    return {**body, "link": [*links, {"relation": "next", "url": url}]}


def own_next_links(body: Json, rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """A search whose real links have another origin than the client's, as behind a reverse proxy that the service ignores."""
    if body.get("type") != "searchset":
        return body
    foreign = urlsplit(rule.origin)
    links = [
        {**one, "url": urlunsplit(urlsplit(one["url"])._replace(scheme=foreign.scheme, netloc=foreign.netloc))}
        for one in body.get("link", [])
    ]
    return {**body, "link": links}


def poison_task(body: Json, rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """A resource with a text that JSON readers fail at; `fill_in_poison` writes it into the serialised body."""
    entries = body.get("entry", [])
    poisoned = rule.ids or tuple(one["resource"].get("id") for one in entries[:1]) or (body.get("id"),)

    def change(resource: Json) -> Json:
        return {**resource, "description": _PLACEHOLDER} if resource.get("id") in poisoned else resource

    return _with_resources(body, change)


_PLACEHOLDER: Final = "@poison@"
_POISON: Final[dict[Poison, bytes]] = {
    "lone_surrogate": b'"cut in the middle \\ud83d"',
    "nan": b"NaN",
    "long_number": b"9" * 100_000,
    "deep_nesting": b"[" * 10_000 + b"]" * 10_000,
    "control_character": b'"a\x01b"',
}


def fill_in_poison(encoded: bytes, rule: FaultRule) -> bytes:
    """The serialised body with what no encoder writes."""
    return encoded.replace(encode(_PLACEHOLDER), _POISON[rule.poison])


def missing_entry(body: Json, _rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """An empty search without `entry`."""
    if body.get("resourceType") == "Bundle" and not body.get("entry"):
        return {key: value for key, value in body.items() if key != "entry"}
    return body


def incomplete_search(body: Json, rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """A search without its last results."""
    if body.get("type") != "searchset":
        return body
    return {**body, "entry": body.get("entry", [])[: -rule.drop]}


def unknown_fields(body: Json, _rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """Every resource with an unknown field and an unknown extension."""
    return _with_resources(body, _with_unknown_fields)


def trailing_zeros(body: Json, _rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """Every numeric `value` with one more zero, which must not be lost: 3 -> 3.0, 1.5 -> 1.50."""
    changed: Json = _add_trailing_zeros(body)
    return changed


def bad_token(body: Json, rule: FaultRule, _own: tuple[str, ...]) -> Json:
    """A sign-in that gives a token which no header can hold."""
    return {**body, "access_token": rule.token} if "access_token" in body else body


RESPONSE_VARIANTS: dict[str, ResponseVariant] = {
    variant.__name__: variant
    for variant in (
        lower_case_references, canonical_references, absolute_references, foreign_references, foreign_next, missing_entry,
        incomplete_search, unknown_fields, trailing_zeros, own_next_links, poison_task, bad_token,
    )
}  # fmt: skip


def _with_references(body: Json, own_addresses: tuple[str, ...], write: Callable[[Ref], str]) -> Json:
    changed: Json = respell_references(body, own_addresses, write)
    return changed


def _with_resources(body: Json, change: Callable[[Json], Json]) -> Json:
    if body.get("resourceType") != "Bundle":
        return change(body) if "resourceType" in body and body["resourceType"] != "OperationOutcome" else body
    return {**body, "entry": list(_changed_entries(body, change))} if "entry" in body else body


def _changed_entries(body: Json, change: Callable[[Json], Json]) -> Iterator[Json]:
    for entry in body["entry"]:
        yield {**entry, "resource": change(entry["resource"])} if "resource" in entry else entry


def _with_unknown_fields(resource: Json) -> Json:
    extension = {"url": "http://elsewhere.example/unknown", "valueDecimal": Decimal("1.10")}
    return {**resource, "unknownField": {"of": [1, "two", None]}, "_status": {"extension": [extension]}}


def _add_trailing_zeros(node: Any) -> Any:
    if isinstance(node, list):
        return [_add_trailing_zeros(child) for child in node]
    if not isinstance(node, dict):
        return node
    return {key: _add_trailing_zero(child) if key == "value" else _add_trailing_zeros(child) for key, child in node.items()}


def _add_trailing_zero(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return _add_trailing_zeros(value)
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int) or exponent > 0:
        return value
    return Decimal((sign, (*digits, 0), exponent - 1))
