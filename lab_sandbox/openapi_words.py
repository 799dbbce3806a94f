"""What the OpenAPI says beyond the routes themselves: resource names, bodies, headers and the shape of every failure."""

from typing import Annotated, Any, Final

from fastapi import Path

from lab_sandbox.index import PARAMETERS, STATUS_AND_CODE
from lab_sandbox.names import TYPES

Stated = dict[str, Any]

_SPELLINGS: Final = [spelling for name in TYPES for spelling in (name, name.lower())]

ResourceName = Annotated[str, Path(description="In either case.", json_schema_extra={"enum": _SPELLINGS})]
"""The name of a resource type in a path; others are answered with 404."""

_TEXT: Final[Stated] = {"type": "string"}
_ISSUE: Final[Stated] = {
    "type": "object",
    "required": ["severity", "code", "diagnostics"],
    "properties": {
        "severity": {"enum": ["fatal", "error", "warning", "information"]},
        "code": {"type": "string"},
        "diagnostics": {"type": "string", "minLength": 1},
    },
}
OPERATION_OUTCOME: Final[Stated] = {
    "type": "object",
    "required": ["resourceType", "issue"],
    "properties": {"resourceType": {"const": "OperationOutcome"}, "issue": {"type": "array", "minItems": 1, "items": _ISSUE}},
}

_GRANTS: Final = ["authorization_code", "password", "client_credentials", "refresh_token"]
_FORM_FIELDS: Final = (
    "client_id", "client_secret", "code", "redirect_uri", "code_verifier", "username", "password", "refresh_token", "scope",
)  # fmt: skip


def object_body(kind: str | None = None) -> Stated:
    """A request whose body is a JSON object; of a resource type, when one is named."""
    return _body("application/json", {"type": "object", **(_resource(kind) if kind else {})})


def any_resource(*headers: Stated) -> Stated:
    """A request whose body is a resource of the type in the path, with these headers."""
    return {**_body("application/json", {"type": "object", **_resource(*TYPES)}), "parameters": list(headers)}


def form_body(*fields: str) -> Stated:
    """A form-encoded request."""
    return _body("application/x-www-form-urlencoded", {"type": "object", "properties": dict.fromkeys(fields, _TEXT)})


def token_body() -> Stated:
    """The token request, of any grant."""
    fields: Stated = {"grant_type": {"enum": _GRANTS}, **dict.fromkeys(_FORM_FIELDS, _TEXT)}
    return _body("application/x-www-form-urlencoded", {"type": "object", "required": ["grant_type"], "properties": fields})


def header(name: str, example: str) -> Stated:
    """A header that the request may carry."""
    return {"name": name, "in": "header", "required": False, "schema": _TEXT, "example": example}


IF_MATCH: Final = header("If-Match", 'W/"1"')
IF_NONE_EXIST: Final = header("If-None-Exist", "identifier=urn:lab|1")
IF_NONE_MATCH: Final = header("If-None-Match", 'W/"1"')


def query(*names: str) -> list[Stated]:
    """Parameters that the query may carry."""
    return [{"name": name, "in": "query", "required": False, "schema": _TEXT} for name in names]


_SEARCHED: Final = sorted({name for one in PARAMETERS.values() for name in one} - {STATUS_AND_CODE})
SEARCH: Final[Stated] = {"parameters": query(*_SEARCHED, "_count", "_after", "_format")}
"""Every parameter that a search of some type takes."""


def _resource(*kinds: str) -> Stated:
    return {"required": ["resourceType"], "properties": {"resourceType": {"enum": list(kinds)}}}


def _body(kind: str, schema: Stated) -> Stated:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}
