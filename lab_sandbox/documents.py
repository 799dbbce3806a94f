"""Result documents: uploaded as Binary, downloaded in the format that Accept selects ("Result documents")."""

import base64
import re
from collections.abc import Iterable

from lab_sandbox.errors import HttpError, Problems
from lab_sandbox.exact_json import Json

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+( *; *[A-Za-z0-9-]+=[A-Za-z0-9.\"-]+)*")
DEFAULT_TYPE = "application/pdf"
FHIR_MEDIA_TYPES = ("application/fhir+json", "application/json+fhir")


def check_binary(binary: Json, problems: Problems) -> None:
    """Checks contentType, and content in base64."""
    if not _MEDIA_TYPE.fullmatch(str(binary.get("contentType"))):
        problems.add("Binary.contentType", "binary-required", "required, the media type of the document", "required")
    try:
        decode_content(binary)
    except HttpError:
        problems.add("Binary.content", "binary-required", "required, the document in base64", "required")


def build_binary(content: bytes, content_type: str) -> Json:
    """A Binary resource from a document that was sent as it is."""
    return {"resourceType": "Binary", "contentType": content_type or DEFAULT_TYPE, "content": base64.b64encode(content).decode()}


def decode_content(binary: Json) -> bytes:
    """The document's bytes (`content` in STU3, `data` in later releases)."""
    text = binary.get("content", binary.get("data"))
    try:
        content = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        content = b""
    if not content:
        raise HttpError.of(422, "invalid", "Binary.content: must be a document in base64")
    return content


def negotiate_media_type(accept: str | None, stored: str) -> str | None:
    """The media type to answer with: the document's own, or the first of FHIR's if Accept prefers the Binary; None if neither."""
    accepted = list(_accepted_media_types(accept))
    for kind in accepted:
        if kind in FHIR_MEDIA_TYPES:
            return FHIR_MEDIA_TYPES[0]
        if kind in {"*/*", stored.partition(";")[0].strip().lower(), f"{stored.partition('/')[0].lower()}/*"}:
            return stored
    return None if accepted else stored


def _accepted_media_types(accept: str | None) -> Iterable[str]:
    ranked = []
    for position, part in enumerate((accept or "").split(",")):
        kind, *options = (one.strip().lower() for one in part.split(";"))
        quality = next((one[2:] for one in options if one.startswith("q=")), "1")
        weight = float(quality) if re.fullmatch(r"[01](\.[0-9]{0,3})?", quality) else 0.0
        if kind and weight > 0:
            ranked.append((-weight, position, kind))
    return [kind for _, _, kind in sorted(ranked)]
