"""A whole answer, held back so that it can be changed, cut short or lost."""

from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_sandbox.outcome import HttpError
from lab_sandbox.wire import Json, decode


@dataclass(frozen=True)
class BufferedResponse:
    """Status, headers and body of one answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def with_body(self, body: bytes) -> "BufferedResponse":
        """The same answer with another body."""
        return replace(self, body=body)

    def with_header(self, name: bytes, value: bytes) -> "BufferedResponse":
        """The same answer with one header set."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name)
        return replace(self, headers=(*kept, (name, value)))

    def parse_json_object(self) -> Json | None:
        """The body when it is a JSON object, so that it can be reshaped."""
        if not any(name.lower() == b"content-type" and b"json" in value for name, value in self.headers):
            return None
        try:
            body = decode(self.body)
        except HttpError:
            return None
        return body if isinstance(body, dict) else None

    async def send(self, send: Send, max_bytes: int | None = None) -> None:
        """Sends it; with `upto`, only so many bytes of the body that its Content-Length promises."""
        whole = self.with_header(b"content-length", str(len(self.body)).encode())
        await send({"type": "http.response.start", "status": whole.status, "headers": list(whole.headers)})
        sent = self.body if max_bytes is None else self.body[:max_bytes]
        await send({"type": "http.response.body", "body": sent, "more_body": max_bytes is not None})


async def capture_response(app: ASGIApp, scope: Scope, receive: Receive) -> BufferedResponse:
    """Lets the app do its work and keeps what it answers."""
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, keep)
    start = next(message for message in messages if message["type"] == "http.response.start")
    body = b"".join(message.get("body", b"") for message in messages if message["type"] == "http.response.body")
    return BufferedResponse(int(start["status"]), tuple(start.get("headers", ())), body)
