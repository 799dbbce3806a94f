"""Searches: query parameters become criteria of the index; pages of matches become a searchset Bundle."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from lab_sandbox.config import SandboxConfig
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import Json, decode_stored
from lab_sandbox.path_aliases import canonical_type
from lab_sandbox.references import parse_reference
from lab_sandbox.resource_store import Criterion, StoredResource
from lab_sandbox.search_index import NOT_IN_STU3, PARAMETER_ALIASES, SEARCH_PARAMETERS, STATUS_AND_CODE
from lab_sandbox.stu3_rules import is_exact_reference

_REFERENCE_PARAMETERS = frozenset({"subject", "source", "specimen", "part-of", "based-on", "result"})
_TARGET_TYPES = {
    "part-of": "Task",
    "based-on": "ProcedureRequest",
    "specimen": "Specimen",
    "result": "Observation",
    "source": "Patient",
}
MAX_CRITERIA = 10
MAX_OPTIONS = 100
_IDENTIFIER_PARAMETERS = frozenset({"identifier", "requisition", "container-id"})


@dataclass(frozen=True)
class SearchQuery:
    """A valid search."""

    type: str
    criteria: tuple[Criterion, ...]
    after: int
    count: int
    raw: tuple[tuple[str, str], ...]
    """The parameters as sent, without the position of the page."""

    def next_page(self, last: StoredResource) -> str:
        """The query of the page after this one."""
        return urlencode([*self.raw, ("_after", str(last.pk))])


def parse_search(kind: str, pairs: Iterable[tuple[str, str]], config: SandboxConfig) -> SearchQuery:
    """Parses query parameters, which may be repeated; `HttpError` (400) names an invalid one."""
    criteria: list[Criterion] = []
    sent: list[tuple[str, str]] = []
    after, count = 0, config.rules.page_size
    for name, value in pairs:
        if name == "_after":
            after = parse_number(name, value)
            continue
        sent.append((name, value))
        if name == "_count":
            count = max(1, min(parse_number(name, value), config.rules.max_page_size))
        elif name != "_format":
            criteria.append(_parse_criterion(kind, name, value, config))
    if len(criteria) > MAX_CRITERIA or any(len(options) > MAX_OPTIONS for _, options in criteria):
        text = f"search: at most {MAX_CRITERIA} criteria with {MAX_OPTIONS} values each"
        raise HttpError.of(400, "too-costly", text)
    return SearchQuery(kind, _combine_status_and_code(kind, criteria), after, count, tuple(sent))


def parse_if_none_exist(kind: str, header: str, config: SandboxConfig) -> tuple[Criterion, ...]:
    """The criteria of `If-None-Exist: identifier=<system>|<value>`; `HttpError` (400) if there are none."""
    pairs = parse_qsl(header.strip().lstrip("?"), keep_blank_values=True)
    criteria = parse_search(kind, pairs, config).criteria
    if not criteria:
        raise HttpError.of(400, "invalid", "If-None-Exist: must have the form identifier=<system>|<value>")
    return criteria


def build_search_bundle(found: Sequence[StoredResource], address: str, self_url: str, next_url: str | None) -> Json:
    """The searchset: `entry` with fullUrl and resource, `link` with self and, if there are more, next."""
    links = [{"relation": "self", "url": self_url}] + ([{"relation": "next", "url": next_url}] if next_url else [])
    return {"resourceType": "Bundle", "type": "searchset", "link": links, "entry": bundle_entries(found, address)}


def bundle_entries(found: Iterable[StoredResource], address: str) -> list[Json]:
    """Bundle entries with absolute fullUrls."""
    return [{"fullUrl": f"{address}fhir/{one.ref.type}/{one.ref.id}", "resource": decode_stored(one.body)} for one in found]


def _parse_criterion(kind: str, name: str, value: str, config: SandboxConfig) -> Criterion:
    param = name if config.strict else PARAMETER_ALIASES.get(name.lower(), name.lower())
    known = SEARCH_PARAMETERS[kind].keys() - {STATUS_AND_CODE, *(NOT_IN_STU3.get(kind, ()) if config.strict else ())}
    if param not in known:
        supported = ", ".join(sorted(known)) or "none"
        raise HttpError.of(400, "not-supported", f"{name}: unknown search parameter of {kind}; supported: {supported}")
    options = [_parse_value(kind, param, _unescape(one), config) for one in re.split(r"(?<!\\),", value) if one]
    if not options:
        raise HttpError.of(400, "invalid", f"{name}: required, a value")
    return param, options


def _parse_value(kind: str, param: str, text: str, config: SandboxConfig) -> str:
    if param in _IDENTIFIER_PARAMETERS:
        if "|" not in text or text.endswith("|"):
            raise HttpError.of(400, "invalid", f"{param}: must have the form <system>|<value>, not {text}")
        return text
    if param not in _REFERENCE_PARAMETERS:
        return text
    if config.strict and "/" in text and not is_exact_reference(text, config.own_addresses):
        raise HttpError.of(400, "invalid", f"{param}: must have the form <Type>/<id>, with the type name in its case, not {text}")
    ref = parse_reference(text, config.own_addresses)
    if ref is None and text and "/" not in text:
        ref = parse_reference(f"{_target_type(kind, param)}/{text}")
    if ref is None or canonical_type(ref.type) is None:
        raise HttpError.of(400, "invalid", f"{param}: must have the form <type>/<id>, not {text}")
    return ref.key()


def _target_type(kind: str, param: str) -> str:
    if param == "subject" and kind == "QuestionnaireResponse":
        return "ProcedureRequest"
    return _TARGET_TYPES.get(param, "Patient")


def _combine_status_and_code(kind: str, criteria: list[Criterion]) -> tuple[Criterion, ...]:
    """Searches Tasks by the pair of status and code, so that a poll does not get slower as completed orders accumulate."""
    by_name = dict(criteria)
    if kind != "Task" or len(by_name) != len(criteria) or not {"status", "code"} <= by_name.keys():
        return tuple(criteria)
    pairs = [f"{status}+{code}" for status in by_name["status"] for code in by_name["code"]]
    return ((STATUS_AND_CODE, pairs), *(one for one in criteria if one[0] not in {"status", "code"}))


def parse_number(name: str, value: str) -> int:
    """A number of at most 15 digits in a query; `HttpError` (400) for anything else."""
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise HttpError.of(400, "invalid", f"{name}: must be a number, not {value}")
    return int(value)


def _unescape(text: str) -> str:
    """Removes FHIR's escapes of special characters in a search value."""
    return re.sub(r"\\([,$|\\])", r"\1", text)
