"""Media types: what has a form that HTTP and FHIR can carry. Pure."""

from __future__ import annotations

import re

LONGEST_TYPE = 255
MEDIA_TYPE_MEND = "write a type and a subtype, such as application/pdf or text/plain; charset=utf-8, in plain ASCII"
BYTES = "application/octet-stream"
"""What is true of any document whose bytes show nothing that is known here."""

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_TYPE = re.compile(rf"{_WORD}/{_WORD}(?: ?; ?{_WORD}=(?:{_WORD}|{_QUOTED}))*", re.ASCII)


def is_media_type(text: str) -> bool:
    """Whether it is a media type (RFC 9110, section 8.3.1) and a FHIR code: printable ASCII, no two blanks side by side."""
    return len(text) <= LONGEST_TYPE and "  " not in text and _TYPE.fullmatch(text) is not None
