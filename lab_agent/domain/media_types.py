"""Media types: what has a form that HTTP and FHIR can carry. Pure."""

from __future__ import annotations

import re

MAX_MEDIA_TYPE_LENGTH = 255
MEDIA_TYPE_HINT = "write a type and a subtype, such as application/pdf or text/plain; charset=utf-8, in plain ASCII"
OCTET_STREAM = "application/octet-stream"
"""What is true of any document whose bytes show nothing that is known here."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED_STRING = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(?: ?; ?{_TOKEN}=(?:{_TOKEN}|{_QUOTED_STRING}))*", re.ASCII)


def is_media_type(text: str) -> bool:
    """Whether it is a media type (RFC 9110, section 8.3.1) and a FHIR code: printable ASCII, no two blanks side by side."""
    return len(text) <= MAX_MEDIA_TYPE_LENGTH and "  " not in text and _MEDIA_TYPE.fullmatch(text) is not None
