"""References on the wire, in all their forms, as one type.

References may be relative or absolute, in either case, with and without `fhir/`, with and without `/_history/<v>`. An absolute
one to another origin raises `ForeignOrigin`: the token never goes there (law 6). Anything else that is no resource of the
service is None, never an exception.

The ids are the service's own. FHIR allows letters, digits, `-` and `.`, up to 64 of them, and not every service keeps to that:
an id is whatever can be percent-encoded into one segment of an address (law 10). Whether a reference has it so encoded, nobody
can tell: it is kept as it was written, and `id_readings` gives what it may mean.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from lab_agent.fhir.received_order import ResourceRef
from lab_agent.shared.errors import ForeignOrigin

_RESOURCE_TYPES = (
    *("Binary", "Bundle", "Contract", "DiagnosticReport", "DocumentReference", "Encounter", "Observation", "Organization"),
    *("Patient", "Practitioner", "ProcedureRequest", "Questionnaire", "QuestionnaireResponse", "Specimen", "Task"),
)
_TYPE_BY_LOWER_NAME = {name.lower(): name for name in _RESOURCE_TYPES}
_TYPE_PATTERN = re.compile(r"[A-Za-z]{2,40}")
_ID_PATTERN = re.compile(r"[^\x00-\x1f\x7f/?#\ud800-\udfff]{1,500}")
"""An id that can be one segment of an address; a longer one could not be stored whole."""
_ESCAPE_PATTERN = re.compile(r"%[0-9A-Fa-f]{2}")
_PLAIN_PATTERN = re.compile(rf"({_TYPE_PATTERN.pattern})/([A-Za-z0-9._\-]{{1,128}})")
"""The form of almost every reference, for which no address has to be taken apart."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


def canonical_type(name: str) -> str:
    """Give a resource type as FHIR spells it; one that the interface does not use stays as it came."""
    return _TYPE_BY_LOWER_NAME.get(name.lower(), name)


def is_addressable(resource_id: str) -> bool:
    """Whether an id can be one segment of an address."""
    return _ID_PATTERN.fullmatch(resource_id) is not None and resource_id.strip(".") != ""


def id_readings(resource_id: str) -> tuple[str, ...]:
    """What the id in a reference may be: as it is written, and without its percent-encoding, if it has any."""
    if not _ESCAPE_PATTERN.search(resource_id):
        return (resource_id,)
    decoded = unquote(resource_id)
    return (resource_id, decoded) if is_addressable(decoded) and "\ufffd" not in decoded else (resource_id,)


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
    if parts.scheme and not parts.netloc:
        return None
    return _parse_path(_path_of(reference.strip(), parts), base.path)


def names_resource(reference: Any, base_url: str) -> bool:
    """Whether a reference to the service names a type of the interface and an id, be it one that cannot be addressed."""
    if not isinstance(reference, str):
        return False
    try:
        parts, base = urlsplit(reference.strip()), urlsplit(base_url)
    except ValueError:
        return False
    path = _split(_path_of(reference.strip(), parts))
    kinds = (number for number, each in enumerate(path[:-1]) if each.lower() in _TYPE_BY_LOWER_NAME)
    return any(_is_service_prefix(path[:number], base.path) for number in kinds)


def resource_at_end(reference: Any) -> tuple[ResourceRef, ...]:
    """Type and id with which a reference ends, whatever address stands before them, in each reading; empty without both."""
    _, resource = _split_resource(_split(reference)) if isinstance(reference, str) else ([], [])
    if len(resource) != 2:
        return ()
    return tuple(ResourceRef(canonical_type(resource[0]), each) for each in id_readings(resource[1]))


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


def _path_of(reference: str, parts: SplitResult) -> str:
    """What stands behind the host, as it is written: an address loses tabs and line ends when it is taken apart."""
    return (reference.split("/", 3)[3:] or [""])[0] if parts.netloc else reference


def _parse_path(path: str, base_path: str) -> ResourceRef | None:
    prefix, resource = _split_resource(_split(path))
    if len(resource) < 2 or not _is_service_prefix(prefix, base_path):
        return None
    kind, resource_id = resource
    if not _TYPE_PATTERN.fullmatch(kind) or not is_addressable(resource_id):
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
