"""Schemas of the OpenAPI description: resource names, bodies, headers, search parameters and OperationOutcome."""

from typing import Annotated, Any, Final

from fastapi import Path

from lab_sandbox.path_aliases import RESOURCE_TYPES
from lab_sandbox.search_index import SEARCH_PARAMETERS, STATUS_AND_CODE

Schema = dict[str, Any]

_RESOURCE_NAMES: Final = [spelling for name in RESOURCE_TYPES for spelling in (name, name.lower())]

ResourceName = Annotated[str, Path(description="In either case.", json_schema_extra={"enum": _RESOURCE_NAMES})]
"""A resource type in a path; others are answered with 404."""

_STRING_SCHEMA: Final[Schema] = {"type": "string"}
_ISSUE_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["severity", "code", "diagnostics"],
    "properties": {
        "severity": {"enum": ["fatal", "error", "warning", "information"]},
        "code": {"type": "string"},
        "diagnostics": {"type": "string", "minLength": 1},
    },
}
OPERATION_OUTCOME: Final[Schema] = {
    "type": "object",
    "required": ["resourceType", "issue"],
    "properties": {
        "resourceType": {"const": "OperationOutcome"},
        "issue": {"type": "array", "minItems": 1, "items": _ISSUE_SCHEMA},
    },
}

_GRANT_TYPES: Final = ["authorization_code", "password", "client_credentials", "refresh_token"]
_FORM_FIELDS: Final = (
    "client_id", "client_secret", "code", "redirect_uri", "code_verifier", "username", "password", "refresh_token", "scope",
)  # fmt: skip


def object_body(kind: str | None = None) -> Schema:
    """A request with a JSON object, of this resource type if one is given."""
    return _request_body("application/json", {"type": "object", **(_resource_schema(kind) if kind else {})})


def any_resource_body(*headers: Schema) -> Schema:
    """A request with a resource of the type in the path, and these headers."""
    return {
        **_request_body("application/json", {"type": "object", **_resource_schema(*RESOURCE_TYPES)}),
        "parameters": list(headers),
    }


def form_body(*fields: str) -> Schema:
    """A form-encoded request."""
    return _request_body(
        "application/x-www-form-urlencoded", {"type": "object", "properties": dict.fromkeys(fields, _STRING_SCHEMA)}
    )


def token_body() -> Schema:
    """A token request with any grant."""
    fields: Schema = {"grant_type": {"enum": _GRANT_TYPES}, **dict.fromkeys(_FORM_FIELDS, _STRING_SCHEMA)}
    return _request_body(
        "application/x-www-form-urlencoded", {"type": "object", "required": ["grant_type"], "properties": fields}
    )


def header_parameter(name: str, example: str) -> Schema:
    """An optional request header."""
    return {"name": name, "in": "header", "required": False, "schema": _STRING_SCHEMA, "example": example}


IF_MATCH: Final = header_parameter("If-Match", 'W/"1"')
IF_NONE_EXIST: Final = header_parameter("If-None-Exist", "identifier=urn:lab|1")
IF_NONE_MATCH: Final = header_parameter("If-None-Match", 'W/"1"')


def query_parameters(*names: str) -> list[Schema]:
    """Optional query parameters."""
    return [{"name": name, "in": "query", "required": False, "schema": _STRING_SCHEMA} for name in names]


_SEARCH_PARAMETER_NAMES: Final = sorted({name for one in SEARCH_PARAMETERS.values() for name in one} - {STATUS_AND_CODE})
SEARCH_OPENAPI: Final[Schema] = {"parameters": query_parameters(*_SEARCH_PARAMETER_NAMES, "_count", "_after", "_format")}
"""All search parameters of all types."""


def _resource_schema(*kinds: str) -> Schema:
    return {"required": ["resourceType"], "properties": {"resourceType": {"enum": list(kinds)}}}


def _request_body(kind: str, schema: Schema) -> Schema:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}
