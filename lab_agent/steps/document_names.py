"""Under what name the journal knows a document of an order that is on the service, or served here, already.

The same bytes under another type are another document: what the clinic asks for (`Accept`) is the type.
"""

from __future__ import annotations

from hashlib import sha256

from lab_agent.domain.ids import OrderKey


def document_name(order: OrderKey, content_sha256: str, content_type: str, *, hosted: bool) -> str:
    """Name a document; `content` is the SHA-256 of its bytes, which names it in the vault too."""
    place = "hosted." if hosted else ""
    return f"{order}.{place}{content_sha256}.{sha256(content_type.encode()).hexdigest()[:16]}"
