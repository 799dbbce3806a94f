"""Rules of single texts: names that are looked up and repeated, and addresses that a clinic is to open.

What is refused here has no sane form beyond this point; whatever a person might still want to send is held later instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from lab_agent.codec.problems import Found
from lab_agent.domain.addresses import ADDRESS_MEND, leads_somewhere
from lab_agent.domain.media_types import MEDIA_TYPE_MEND, is_media_type

LONGEST_NAME = 200
"""As long as a number that a laboratory system gives an order may be, too."""
NAMES = frozenset({"report_id", "order", "accession", "barcode", "lines", "items", "completes", "line", "item", "number"})
"""Fields by which a message names what it is about."""
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})


def text_rules(text: str, place: tuple[str | int, ...]) -> Iterator[Found]:
    """Say what is wrong with a text at this place of a message."""
    field = next((part for part in reversed(place) if isinstance(part, str)), "")
    if "\0" in text:
        yield Found(place, "holds a NUL character", "leave it out: neither databases nor the exchange take it")
    elif field in NAMES:
        yield from _name(text, place)
    elif field == "url" and text and not leads_somewhere(text):
        yield Found(place, "is no address that a clinic could open", ADDRESS_MEND)
    elif field == "content_type" and not is_media_type(text):
        yield Found(place, "is no media type", MEDIA_TYPE_MEND)
    elif field == "language" and text.strip() and text.split() != [text]:
        yield Found(place, "is no code of a language", "write it without white space, such as ru or en-US")
    elif field == "value_string" and text and not text.strip():
        yield Found(place, "is blank", "write the value, or leave the observation out")


def _name(text: str, place: tuple[str | int, ...]) -> Iterator[Found]:
    if len(text) > LONGEST_NAME:
        yield Found(place, f"is longer than {LONGEST_NAME} characters", "give the name alone")
    elif any(unicodedata.category(char) in _CONTROLS for char in text):
        yield Found(place, "holds a control character", "give the name on one line, without tabs")
    elif text != text.strip():
        yield Found(place, "begins or ends with white space", "leave that out")
