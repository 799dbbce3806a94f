"""References on the wire, in all their forms, as one type.

References may be relative or absolute, in either case, with and without `fhir/`, with and without `/_history/<v>`. An absolute
one to another origin raises `ForeignOrigin`: the token never goes there (law 6). Anything else that is no resource of the
service is None, never an exception.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lab_agent.domain.received_order import ResourceRef
from lab_agent.errors import ForeignOrigin

_RESOURCE_TYPES = (
    *("Binary", "Bundle", "Contract", "DiagnosticReport", "DocumentReference", "Encounter", "Observation", "Organization"),
    *("Patient", "Practitioner", "ProcedureRequest", "Questionnaire", "QuestionnaireResponse", "Specimen", "Task"),
)
_TYPE_BY_LOWER_NAME = {name.lower(): name for name in _RESOURCE_TYPES}
_TYPE_PATTERN = re.compile(r"[A-Za-z]{2,40}")
_ID_PATTERN = re.compile(r"[A-Za-z0-9._\-]{1,128}")
_PLAIN_PATTERN = re.compile(rf"({_TYPE_PATTERN.pattern})/({_ID_PATTERN.pattern})")
"""The form of almost every reference, for which no address has to be taken apart."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


def canonical_type(name: str) -> str:
    """Give a resource type as FHIR spells it; one that the interface does not use stays as it came."""
    return _TYPE_BY_LOWER_NAME.get(name.lower(), name)


def parse_reference(reference: Any, base_url: str) -> ResourceRef | None:
    """Read a reference. None for what names no resource of the service. Raises `ForeignOrigin` for another origin's."""
    if not isinstance(reference, str):
        return None
    if (plain := _PLAIN_PATTERN.fullmatch(reference)) and plain[2].strip("."):
        return ResourceRef(canonical_type(plain[1]), plain[2])
    try:
        parts, base = urlsplit(reference.strip()), urlsplit(base_url)
        if parts.netloc and _origin(parts, base) != _origin(base, base):
            raise ForeignOrigin("a reference leads to another origin than the service's; it was not followed")
    except ValueError:
        return None
    if parts.query or parts.fragment or (parts.scheme and not parts.netloc):
        return None
    return _parse_path(parts.path, base.path)


def resource_at_end(reference: Any) -> ResourceRef | None:
    """Type and id with which a reference ends, whatever address stands before them; None without both."""
    _, resource = _split_resource(_split(reference)) if isinstance(reference, str) else ([], [])
    return ResourceRef(canonical_type(resource[0]), resource[1]) if len(resource) == 2 else None


def leads_elsewhere(reference: Any, base_url: str) -> bool:
    """Whether a reference is an address that is not one of the service's own: another origin, or another path of its host.

    What such a reference names may be on the service all the same, where `base_url` is not how the service calls itself
    (`http` for `https`, `localhost` behind a proxy): it is our own fault then (law 10).
    """
    if not isinstance(reference, str):
        return False
    try:
        parts, base = urlsplit(reference.strip()), urlsplit(base_url)
        same_origin = _origin(parts, base) == _origin(base, base)
    except ValueError:
        return False
    above, path = _split(base.path), _split(parts.path)
    is_below = [each.lower() for each in path[: len(above)]] == [each.lower() for each in above]
    return bool(parts.netloc) and not (same_origin and is_below and _is_service_prefix(_split_resource(path)[0], base.path))


def is_same_origin(address: str, base_url: str) -> bool:
    """Whether an absolute address has the service's scheme, host and port."""
    try:
        parts, base = urlsplit(address.strip()), urlsplit(base_url)
        return bool(parts.netloc) and _origin(parts, base) == _origin(base, base)
    except ValueError:
        return False


def _origin(parts: SplitResult, base: SplitResult) -> tuple[str, str, int | None]:
    scheme = (parts.scheme or base.scheme).lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(scheme)


def _parse_path(path: str, base_path: str) -> ResourceRef | None:
    prefix, resource = _split_resource(_split(path))
    if len(resource) < 2 or not _is_service_prefix(prefix, base_path):
        return None
    kind, resource_id = resource
    if not _TYPE_PATTERN.fullmatch(kind) or not _ID_PATTERN.fullmatch(resource_id) or not resource_id.strip("."):
        return None
    return ResourceRef(canonical_type(kind), resource_id)


def _split(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]


def _split_resource(segments: list[str]) -> tuple[list[str], list[str]]:
    """What is before a type and an id, and these two; without a version."""
    if len(segments) >= 4 and segments[-2].lower() == "_history":
        segments = segments[:-2]
    return segments[:-2], segments[-2:]


def _is_service_prefix(segments: list[str], base_path: str) -> bool:
    """Whether these segments are nothing, the base path, `fhir`, or the base path and `fhir`."""
    lowered = [segment.lower() for segment in segments]
    base = [segment.lower() for segment in _split(base_path)]
    return lowered in ([], base, ["fhir"], [*base, "fhir"])
