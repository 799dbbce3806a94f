"""The description of both directions in OpenAPI 3.1: what the LIS posts to us, and (as webhooks) what we post to it. Pure."""

from __future__ import annotations

from typing import Any

from lab_agent.codec import message_schema, order_schema
from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signing import NAME, SIGNATURE, TIMESTAMP

_TEXT = {"type": "string"}
_NUMBERS = {"type": "object", "additionalProperties": _TEXT}


def describe(settings: HttpSettings) -> dict[str, Any]:
    """Give the document."""
    message, order = message_schema(), order_schema()
    definitions = {**message.pop("$defs"), **order.pop("$defs")}
    schemas = {**definitions, "LabMessage": _bare(message), "Order": _bare(order), "Receipt": _RECEIPT, "Withdrawal": _WITHDRAWAL}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Laboratory system by HTTP", "version": "1"},
        "paths": {
            f"{settings.prefix}/messages": {"post": _messages()},
            f"{settings.prefix}/health": {"get": {"summary": "Sign of life", "responses": {"200": _answer("Listening")}}},
        },
        "webhooks": {
            settings.orders_path: {"post": _outgoing("An order", "Order", _answer("Taken", "Receipt"))},
            settings.cancel_path: {"post": _outgoing("Lines that were withdrawn", "Withdrawal", _answer("Taken"))},
        },
        "components": {"schemas": schemas},
    }
    moved: dict[str, Any] = _moved(document)
    return moved


def _messages() -> dict[str, Any]:
    return {
        "summary": "A report, a refusal or a receipt",
        "parameters": _headers(),
        "requestBody": {"required": True, "content": _content("LabMessage")},
        "responses": {
            "200": _answer("Kept, now or before"),
            "401": _answer("Not signed as it must be, or too long ago"),
            "413": _answer("Too large"),
            "422": _answer("Not understood; every bad field is named"),
            "503": _answer("Could not be kept; send it again"),
        },
    }


def _outgoing(summary: str, schema: str, taken: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "parameters": _headers(),
        "requestBody": {"required": True, "content": _content(schema)},
        "responses": {
            "200": taken,
            "409": _answer("There already, under this Idempotency-Key: a success"),
            "422": _answer("Refused for good; `code` in the answer is shown to a person"),
            "503": _answer("Not taken; we come again, after Retry-After"),
        },
    }


def _headers() -> list[dict[str, Any]]:
    texts = {
        TIMESTAMP: "Seconds since 1970",
        NAME: "Name of the message, the same for every repeat",
        SIGNATURE: "v1= and HMAC-SHA256 in hexadecimal over timestamp, name and body, with full stops between",
    }
    return [
        {"name": name, "in": "header", "required": True, "description": text, "schema": _TEXT} for name, text in texts.items()
    ]


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _answer(text: str, schema: str | None = None) -> dict[str, Any]:
    return {"description": text, **({"content": _content(schema)} if schema else {})}


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$schema"}


def _moved(tree: Any) -> Any:
    """Let references lead to where OpenAPI keeps its schemas."""
    if isinstance(tree, list):
        return [_moved(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: item.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(item) for key, item in tree.items()
    }


_RECEIPT = {
    "type": "object",
    "description": "The laboratory's own numbers, where it has them at once; else it posts a receipt later.",
    "properties": {"accession": _TEXT, "lines": _NUMBERS, "tubes": _NUMBERS},
}
_WITHDRAWAL = {
    "type": "object",
    "required": ["kind", "order", "lines"],
    "properties": {
        "kind": {"const": "cancel"},
        "order": _TEXT,
        "lines": {"type": "array", "items": {"type": "object", "properties": {"line": _TEXT, "reason": _TEXT}}},
    },
}
