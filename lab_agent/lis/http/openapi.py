"""The description of both directions in OpenAPI 3.1: what the LIS posts to us, and (as webhooks) what we post to it. Pure."""

from __future__ import annotations

from typing import Any

from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signatures import IDEMPOTENCY_KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from lab_agent.serialization import message_schema, order_schema

_TEXT = {"type": "string"}
_ACCESSIONS = {"type": "object", "additionalProperties": _TEXT}


def openapi_document(settings: HttpSettings) -> dict[str, Any]:
    """Give the document."""
    message, order = message_schema(), order_schema()
    definitions = {**message.pop("$defs"), **order.pop("$defs")}
    schemas = {
        **definitions,
        "LabMessage": _without_schema_uri(message),
        "Order": _without_schema_uri(order),
        "Receipt": _SUBMIT_RESULT,
        "Withdrawal": _CANCELLATION,
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Laboratory system by HTTP", "version": "1"},
        "paths": {
            f"{settings.prefix}/messages": {"post": _messages_operation()},
            f"{settings.prefix}/health": {"get": {"summary": "Sign of life", "responses": {"200": _response("Listening")}}},
        },
        "webhooks": {
            settings.orders_path: {"post": _webhook_operation("An order", "Order", _response("Taken", "Receipt"))},
            settings.cancel_path: {"post": _webhook_operation("Lines that were withdrawn", "Withdrawal", _response("Taken"))},
        },
        "components": {"schemas": schemas},
    }
    moved: dict[str, Any] = _rewrite_refs(document)
    return moved


def _messages_operation() -> dict[str, Any]:
    return {
        "summary": "A report, a refusal or a receipt",
        "parameters": _headers(),
        "requestBody": {"required": True, "content": _content("LabMessage")},
        "responses": {
            "200": _response("Kept, now or before"),
            "401": _response("Not signed as it must be, or too long ago"),
            "413": _response("Too large"),
            "422": _response("Not understood; every bad field is named"),
            "503": _response("Could not be kept; send it again"),
        },
    }


def _webhook_operation(summary: str, schema: str, success: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "parameters": _headers(),
        "requestBody": {"required": True, "content": _content(schema)},
        "responses": {
            "200": success,
            "409": _response("There already, under this Idempotency-Key: a success"),
            "422": _response("Refused for good; `code` in the answer is shown to a person"),
            "503": _response("Not taken; we come again, after Retry-After"),
        },
    }


def _headers() -> list[dict[str, Any]]:
    texts = {
        TIMESTAMP_HEADER: "Seconds since 1970",
        IDEMPOTENCY_KEY_HEADER: "Name of the message, the same for every repeat",
        SIGNATURE_HEADER: "v1= and HMAC-SHA256 in hexadecimal over timestamp, name and body, with full stops between",
    }
    return [
        {"name": name, "in": "header", "required": True, "description": text, "schema": _TEXT} for name, text in texts.items()
    ]


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _response(text: str, schema: str | None = None) -> dict[str, Any]:
    return {"description": text, **({"content": _content(schema)} if schema else {})}


def _without_schema_uri(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$schema"}


def _rewrite_refs(tree: Any) -> Any:
    """Let references lead to where OpenAPI keeps its schemas."""
    if isinstance(tree, list):
        return [_rewrite_refs(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: item.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _rewrite_refs(item)
        for key, item in tree.items()
    }


_SUBMIT_RESULT = {
    "type": "object",
    "description": "The laboratory's own numbers, where it has them at once; else it posts a receipt later.",
    "properties": {"accession": _TEXT, "lines": _ACCESSIONS, "tubes": _ACCESSIONS},
}
_CANCELLATION = {
    "type": "object",
    "required": ["kind", "order", "lines"],
    "properties": {
        "kind": {"const": "cancel"},
        "order": _TEXT,
        "lines": {"type": "array", "items": {"type": "object", "properties": {"line": _TEXT, "reason": _TEXT}}},
    },
}
