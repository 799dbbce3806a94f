"""Request bodies of bounded size and time."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from lab_agent.catalogue.basket import decode_basket
from lab_api.errors import ApiError

_BODY_TIMEOUT = 30.0
_JSON = "application/json"
"""What a basket is sent as (interface: Questionnaire request); a charset beside it says nothing, as JSON is UTF-8."""
_MIN_THREADED_BYTES = 20_000
_WHOLE_BASKET = "keep the basket whole, and ask the laboratory to raise its limit (api.max_body)"


async def read_json(request: Request, limit: int) -> Any:
    """Read a JSON body of at most `limit` bytes. Raises `ApiError` (408, 413, 415) and `DataInvalidError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise ApiError(415, "not-supported", f"Content-Type: must be {_JSON}, not {kind[:50] or 'missing'} — send it as {_JSON}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "not-supported", "Content-Encoding: is not supported — send the body uncompressed")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit, _WHOLE_BASKET)
    body = await read_body(request, limit, _WHOLE_BASKET)
    return await asyncio.to_thread(decode_basket, body) if len(body) > _MIN_THREADED_BYTES else decode_basket(body)


async def read_body(request: Request, limit: int, hint: str = "send a smaller one") -> bytes:
    """Read a body of at most `limit` bytes. Raises `ApiError` (400, 408, 413)."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit, hint)
    except TimeoutError as exc:
        raise ApiError(408, "timeout", "body: did not arrive in time — send it again") from exc
    except ClientDisconnect as exc:
        raise ApiError(400, "incomplete", "body: is incomplete — send it again") from exc
    return bytes(body)


def _too_large(limit: int, hint: str) -> ApiError:
    return ApiError(413, "too-costly", f"body: is larger than {limit} bytes — {hint}")
