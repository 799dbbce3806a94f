"""Describes both directions in OpenAPI 3.1: what the LIS posts to us, and (as webhooks) what we post to it. Pure."""

from __future__ import annotations

from typing import Any

from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signatures import IDEMPOTENCY_KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from lab_agent.lis.serialization import message_schema, order_schema

_TEXT = {"type": "string"}
_ACCESSIONS = {"type": "object", "additionalProperties": _TEXT}


def openapi_document(settings: HttpSettings) -> dict[str, Any]:
    """Return the document."""
    message, order = message_schema(), order_schema()
    definitions = {**message.pop("$defs"), **order.pop("$defs")}
    schemas = {
        **definitions,
        "LabMessage": _without_schema_uri(message),
        "Order": _without_schema_uri(order),
        "SubmitResult": _SUBMIT_RESULT,
        "Cancellation": _CANCELLATION,
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Laboratory system by HTTP", "version": "1"},
        "paths": {
            f"{settings.prefix}/messages": {"post": _messages_operation()},
            f"{settings.prefix}/health": {"get": {"summary": "Health check", "responses": {"200": _response("Listening")}}},
        },
        "webhooks": {
            settings.orders_path: {"post": _webhook_operation("An order", "Order", _response("Accepted", "SubmitResult"))},
            settings.cancel_path: {"post": _webhook_operation("Cancelled lines", "Cancellation", _response("Accepted"))},
        },
        "components": {"schemas": schemas},
    }
    rewritten: dict[str, Any] = _rewrite_refs(document)
    return rewritten


def _messages_operation() -> dict[str, Any]:
    return {
        "summary": "A report, a rejection or an accession update",
        "parameters": _headers(),
        "requestBody": {"required": True, "content": _content("LabMessage")},
        "responses": {
            "200": _response("Stored, now or before"),
            "401": _response("Signature missing, wrong or too old"),
            "408": _response("The rest of the message did not arrive in time"),
            "413": _response("Too large"),
            "422": _response("Invalid message; every invalid field is named"),
            "503": _response("Could not be stored, or too many messages at once; send it again"),
        },
    }


def _webhook_operation(summary: str, schema: str, success: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "parameters": _headers(),
        "requestBody": {"required": True, "content": _content(schema)},
        "responses": {
            "200": success,
            "409": _response("Already received under this Idempotency-Key: a success"),
            "422": _response("Rejected for good; an operator sees the `code` of the response"),
            "503": _response("Not accepted now; the agent tries again after Retry-After"),
        },
    }


def _headers() -> list[dict[str, Any]]:
    texts = {
        TIMESTAMP_HEADER: "Unix time in seconds",
        IDEMPOTENCY_KEY_HEADER: "Name of the message, the same in every repeat",
        SIGNATURE_HEADER: "v1= and the HMAC-SHA256 in hexadecimal over timestamp, name and body, joined by full stops",
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
    """Point references to where OpenAPI keeps its schemas."""
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
    "description": "The laboratory's own numbers if it assigns them at once; otherwise it posts an accession update later.",
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
