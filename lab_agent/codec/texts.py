"""Rules of single texts: names that are looked up and repeated, and addresses that a clinic is to open.

What is refused here has no sane form beyond this point; whatever a person might still want to send is held later instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from lab_agent.codec.problems import ValidationIssue
from lab_agent.domain.addresses import URL_HINT, is_openable_url
from lab_agent.domain.media_types import MEDIA_TYPE_HINT, is_media_type

MAX_NAME_LENGTH = 200
"""As long as a number that a laboratory system gives an order may be, too."""
NAME_FIELDS = frozenset({"report_id", "order", "accession", "barcode", "lines", "items", "completes", "line", "item", "number"})
"""Fields by which a message names what it is about."""
_CONTROL_CATEGORIES = frozenset({"Cc", "Zl", "Zp"})


def text_issues(text: str, location: tuple[str | int, ...]) -> Iterator[ValidationIssue]:
    """Say what is wrong with a text at this place of a message."""
    field = next((part for part in reversed(location) if isinstance(part, str)), "")
    if "\0" in text:
        yield ValidationIssue(location, "holds a NUL character", "leave it out: neither databases nor the exchange take it")
    elif field in NAME_FIELDS:
        yield from _name_issues(text, location)
    elif field == "url" and text and not is_openable_url(text):
        yield ValidationIssue(location, "is no address that a clinic could open", URL_HINT)
    elif field == "content_type" and not is_media_type(text):
        yield ValidationIssue(location, "is no media type", MEDIA_TYPE_HINT)
    elif field == "language" and text.strip() and text.split() != [text]:
        yield ValidationIssue(location, "is no code of a language", "write it without white space, such as ru or en-US")
    elif field == "value_string" and text and not text.strip():
        yield ValidationIssue(location, "is blank", "write the value, or leave the observation out")


def _name_issues(text: str, location: tuple[str | int, ...]) -> Iterator[ValidationIssue]:
    if len(text) > MAX_NAME_LENGTH:
        yield ValidationIssue(location, f"is longer than {MAX_NAME_LENGTH} characters", "give the name alone")
    elif any(unicodedata.category(char) in _CONTROL_CATEGORIES for char in text):
        yield ValidationIssue(location, "holds a control character", "give the name on one line, without tabs")
    elif text != text.strip():
        yield ValidationIssue(location, "begins or ends with white space", "leave that out")
