"""The JSON Schemas of orders and messages, for the authors of adapters and interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from lab_agent.lis.serialization.types import strict_schema
from lab_agent.lis.serialization.validation import ACCESSION_FIELDS, MAX_NAME_LENGTH, NAME_FIELDS, SOURCE_FIELDS, VALUE_FIELDS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def build_schema(kinds: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Give the schema of a value that is one of `kinds`; its field `kind` says which, unless there is only one."""
    definitions: Any
    references, definitions = GenerateJsonSchema(ref_template="#/$defs/{model}").generate_definitions(
        [(kind, "validation", strict_schema(target)) for kind, target in kinds.items()]
    )
    for kind, target in kinds.items():
        if kind:
            _add_kind(definitions[target.__name__], kind)
    choices = list(references.values())
    top = choices[0] if len(choices) == 1 else {"oneOf": choices}
    return {"$schema": _DIALECT, "title": title, **top, "$defs": _require_exactly_one(_drop_null_branches(definitions))}


def limit_name_lengths(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the maximum length of names, which the rules of `validation` check in incoming messages only."""
    for definition in schema["$defs"].values():
        for field in NAME_FIELDS & definition.get("properties", {}).keys():
            declared = definition["properties"][field]
            declared.get("items", declared)["maxLength"] = MAX_NAME_LENGTH
    return schema


def _add_kind(definition: dict[str, Any], kind: str) -> None:
    definition["properties"] = {"kind": {"const": kind}, **definition["properties"]}
    if kind != "report":
        definition["required"] = ["kind", *definition.get("required", ())]


def _require_exactly_one(definitions: dict[str, Any]) -> dict[str, Any]:
    """Add which fields exclude each other."""
    for name, choices in (("ReportedObservation", VALUE_FIELDS), ("Document", SOURCE_FIELDS), ("Accession", ACCESSION_FIELDS)):
        if name in definitions:
            definitions[name]["oneOf"] = [{"required": [one]} for one in choices]
    return definitions


def _drop_null_branches(schema: Any) -> Any:
    """Describe an optional field only as what it is when it is given: nothing is ever written as null."""
    if isinstance(schema, list):
        return [_drop_null_branches(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    match schema:
        case {"anyOf": [kind, {"type": "null"}], **rest}:
            schema = {**kind, **rest}
    return {key: _drop_null_branches(item) for key, item in schema.items() if (key, item) != ("default", None)}
