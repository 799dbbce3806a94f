"""Patients and resources whose every field is a word that stands nowhere else, and a look at every address of the status page."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
from fhir.resources.STU3 import get_fhir_model_class

from lab_agent.status.app import PAGE_MODULES

FAMILY, GIVEN, MIDDLE, BORN = "Kanarfamilie", "Kanargiven", "Kanarmiddle", "1907-08-13"
SHOWN = (FAMILY, GIVEN, MIDDLE, BORN, "+15550199471", "kanarmail@example.org", "KANARPOLICY7741", "KANARPASSPORT7742")
"""What the page shows of a patient to those who may reveal it."""
HIDDEN = ("Kanarmaiden", "Kanarstreet", "Kanarcity", "KANARPOST", "Kanarcontact", "Kanardisplay", "Kanarnarrative", "Kanarfile")
CANARIES = (*SHOWN, *HIDDEN, BORN.replace("-", ""), "13.08.1907")
NAMELESS = frozenset({"id", "reference", "resourceType", "versionId", "fullUrl"})
"""What a resource is addressed by: no person writes it, and log and alerts name resources by it."""
_PER_KIND = 2
"""How many addresses of one kind are looked at: of one route, with the same parameters."""
_MAX_ADDRESSES = 250
_LINK = re.compile(r'(?:href|src|action)="(/[^"#]*)')


def canary_patient(patient: Mapping[str, Any]) -> dict[str, Any]:
    """A Patient that a clinic may send, with every field in which a person is named."""
    return {
        **patient,
        "text": {"status": "generated", "div": '<div xmlns="http://www.w3.org/1999/xhtml">Kanarnarrative</div>'},
        "identifier": [
            {"system": "urn:policy", "value": "KANARPOLICY7741"},
            {"system": "urn:passport", "value": "KANARPASSPORT7742"},
        ],
        "name": [{"family": FAMILY, "given": [GIVEN, MIDDLE]}, {"use": "maiden", "family": "Kanarmaiden", "given": [GIVEN]}],
        "birthDate": BORN,
        "telecom": [{"system": "phone", "value": "+15550199471"}, {"system": "email", "value": "kanarmail@example.org"}],
        "address": [{"line": ["Kanarstreet 5"], "city": "Kanarcity", "postalCode": "KANARPOST"}],
        "contact": [{"name": {"family": "Kanarcontact"}}],
    }


def name_patient_everywhere(bundle: dict[str, Any]) -> None:
    for entry in bundle["entry"]:
        resource = entry["resource"]
        resource["text"] = {"status": "generated", "div": '<div xmlns="http://www.w3.org/1999/xhtml">Kanarnarrative</div>'}
        for reference in _references(resource):
            reference["display"] = "Kanardisplay"


def hl7_result(name: str, order: str, line: str, status: str) -> bytes:
    now = datetime.now(UTC).strftime("%Y%m%d%H%M%S+0000")
    segments = [
        f"MSH|^~\\&|LIS|LAB|LAB-AGENT||{now}||ORU^R01^ORU_R01|{name}|P|2.5.1",
        f"PID|1||P-7||{FAMILY}^{GIVEN}^{MIDDLE}||{BORN.replace('-', '')}|",
        f"PV1|1|O|||||||||||||||||{order}",
        f"OBR|1|{line}|{name}|GLU^Glucose^L|||{now}|||||||||||||||{now}|||{status}",
        "OBX|1|NM|2345-7^Glucose^LN||5.1|mmol/l|3.9-6.1||||F",
    ]
    return "\r".join(segments).encode() + b"\r"


def find_canaries(text: str) -> list[str]:
    folded = text.casefold()
    return [canary for canary in CANARIES if canary.casefold() in folded]


def _references(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "patient/" in str(value.get("reference", "")).casefold():
            yield value
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


@dataclass
class Canaries:
    """Words that stand nowhere else, by the place where each was put."""

    places: dict[str, str] = field(default_factory=dict)

    def new(self, place: str) -> str:
        word = f"kanar{len(self.places):05}x"
        self.places[word] = place
        return word

    def find(self, text: str | bytes) -> set[str]:
        found = re.findall(r"kanar\d{5}x", (text.decode(errors="replace") if isinstance(text, bytes) else text).casefold())
        return {self.places[each] for each in found}

    # --- words in JSON

    def everywhere_else(self, resource: dict[str, Any], as_text: bool) -> dict[str, Any]:
        """The resource with each element of STU3 that it lacks, and in each object what FHIR allows in any."""
        kind = resource["resourceType"]
        made = self._decorate(resource, kind)
        for name in get_fhir_model_class(kind).elements_sequence():
            if name not in resource and name not in NAMELESS:
                place = f"{kind}.{name}"
                made[name] = self.new(place) if as_text else [self.sink(place)]
        return made

    def leaves(self, resource: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Paths of the values of a resource in which somebody may write."""
        members = resource.items() if isinstance(resource, dict) else enumerate(resource) if isinstance(resource, list) else ()
        for key, value in members:
            if key not in NAMELESS:
                yield from [(*path, key)] if not isinstance(value, dict | list) else self.leaves(value, (*path, key))

    def put(self, resource: Any, path: tuple[Any, ...], kind: str) -> Any:
        copy = json.loads(json.dumps(resource))
        at = copy
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = self.new(f"{kind}." + ".".join(str(each) for each in path if not isinstance(each, int)))
        return copy

    def _decorate(self, value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [self._decorate(each, place) for each in value]
        if not isinstance(value, dict):
            return value
        made = {key: self._decorate(each, f"{place}.{key}") for key, each in value.items()}
        more = {"extension": [{"url": self.new(f"{place}.extension.url"), "valueString": self.new(f"{place}.extension.value")}]}
        if "reference" in value:
            more["display"] = self.new(f"{place}.display")
            more["identifier"] = {"value": self.new(f"{place}.identifier")}
        return {**more, **made}

    def sink(self, place: str) -> dict[str, Any]:
        """An object with what any type of FHIR has for people."""
        words = {key: self.new(f"{place}.{key}") for key in ("text", "display", "value", "title", "div", "authorString", "url")}
        coding = [{key: self.new(f"{place}.coding.{key}") for key in ("system", "code", "display")}]
        return {**words, "coding": coding, "identifier": {"value": self.new(f"{place}.identifier")}}


def page_routes() -> tuple[str, ...]:
    """The routes of the status page that are read, but for the stream, which does not end."""
    routes = [route for module in PAGE_MODULES for route in module.router.routes]
    return tuple(str(route.path) for route in routes if "GET" in route.methods and route.path != "/live")  # type: ignore[attr-defined]


@dataclass
class Crawl:
    """Reads a page, and what it links to, and so on; of many addresses of one kind a few."""

    client: httpx.Client
    statuses: dict[str, int] = field(default_factory=dict)
    found: dict[str, list[str]] = field(default_factory=dict)
    """By address: the canaries in its answer."""
    token: str = ""
    """The newest form token that a page had."""
    _kinds: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def run(self, addresses: Iterable[str]) -> None:
        waiting = [each for each in addresses if self.is_wanted(each)]
        while waiting:
            address = waiting.pop(0)
            if address in self.statuses:
                continue
            assert len(self.statuses) < _MAX_ADDRESSES, f"too many addresses: {sorted(self.statuses)}"
            answer = self.client.get(address)
            self.statuses[address] = answer.status_code
            if canaries := find_canaries(f"{address}\n{answer.headers}\n{answer.text}"):
                self.found[address] = canaries
            if answer.headers.get("content-type", "").startswith("text/html"):
                if found := re.search(r'name="csrf_token" value="([^"]+)"', answer.text):
                    self.token = found[1]
                waiting += [each for each in map(unescape, _LINK.findall(answer.text)) if self.is_wanted(each)]

    def unexpected(self, noted: Mapping[str, set[str]]) -> dict[str, list[str]]:
        """The canaries by address, without those that may stand at a route."""
        rest = {
            address: [each for each in said if each not in noted.get(route_of(address) or "", ())]
            for address, said in self.found.items()
        }
        return {address: said for address, said in rest.items() if said}

    def routes(self) -> set[str]:
        """The routes that gave an answer that is no refusal."""
        return {route for address, status in self.statuses.items() if status < 400 and (route := route_of(address))}

    def is_wanted(self, address: str) -> bool:
        """Whether it was not read yet, nor enough others of its kind."""
        parts = urlsplit(address)
        route = route_of(address)
        if address in self.statuses or route is None:
            return False
        kind = (route, *sorted(name for name, _ in parse_qsl(parts.query)))
        self._kinds[kind] += 1
        return self._kinds[kind] <= _PER_KIND


def route_of(address: str) -> str | None:
    """The route of an address; None for files, forms and the stream."""
    path = urlsplit(address).path
    fitting = [each for each in page_routes() if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each)), path)]
    return min(fitting, key=lambda each: each.count("{"), default=None)
