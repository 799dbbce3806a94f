"""Result documents under unguessable addresses (interface: Result documents; our way `host`).

Whoever has the address may read: it stands in a DiagnosticReport that only the partner can read. An unknown address and an
expired one are the same 404.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from lab_agent.lis.report_documents import OCTET_STREAM, is_media_type
from lab_agent.results.records import HostedDocument
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_api.errors import ApiError, OutageReporter
from lab_api.response_cache import accepted_values, holds_version

_MAX_ADDRESS_LENGTH = 200
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class HostedDocuments:
    """Serves the documents to which the agent has given an address."""

    store: Store
    now: Callable[[], datetime]
    outages: OutageReporter = field(default_factory=OutageReporter)

    async def get_document(self, request: Request) -> Response:
        """The document at the path's `address`; 304 if the client holds it; HEAD as GET without a body.

        Raises `ApiError` (404, 503; 406 if the client wants another format).
        """
        address: str = request.path_params["address"]
        with self.outages.report_outage("documents"):
            found = await self.store.run_read_only(lambda uow: self._find(uow, address[:_MAX_ADDRESS_LENGTH]))
        if found is None:
            raise ApiError(
                404, "not-found", "document: not found at this address — read the report again for its current address"
            )
        hosted, content = found
        # What is stored must not become a header of its own.
        kind = hosted.content_type if is_media_type(hosted.content_type) else OCTET_STREAM
        if not accepts(request.headers.getlist("accept"), kind):
            raise ApiError(406, "not-supported", f"Accept: the document is available as {kind} only — accept it, or */*")
        etag = f'"{hosted.document}"'
        headers = {**_HEADERS, "ETag": etag}
        if holds_version(request, etag):
            return Response(status_code=304, headers=headers)
        headers["Content-Length"] = str(len(content))
        body = b"" if request.method == "HEAD" else content
        return Response(body, 200, headers, kind)

    def _find(self, uow: UnitOfWork, address: str) -> tuple[HostedDocument, bytes] | None:
        hosted = uow.hosted_documents.get(address)
        if hosted is None or (hosted.expires_at is not None and hosted.expires_at <= self.now()):
            return None
        kept = uow.vault.document(hosted.document)
        return None if kept is None else (hosted, kept[0])


def accepts(accept: list[str], content_type: str) -> bool:
    """Whether a client accepts a media type (RFC 9110, section 12.5.1): the most specific range that fits decides."""
    ranges = accepted_values(accept)
    kind = content_type.partition(";")[0].strip().lower()
    for wanted in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if wanted in ranges:
            return ranges[wanted]
    return not ranges
