"""The bytes of a basket into its JSON: one reading for the laboratory's API and for the command that explains a basket."""

from __future__ import annotations

import json
import re
from typing import Any

from lab_agent import exact_json
from lab_agent.errors import DataInvalidError, Problem

_BOM = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def decode_basket(body: bytes) -> Any:
    """Read JSON in UTF-8, with a mark or without. Raises `DataInvalidError` (also for a key that an object has twice)."""
    plain = body.removeprefix(_BOM)
    try:
        return exact_json.loads_strictly(plain)
    except DataInvalidError:
        if _has_lone_surrogate(plain):
            what = "not JSON in UTF-8: a \\uD800…\\uDFFF stands alone, which is half of a character"
            raise DataInvalidError((Problem("document", what, "send both halves, or the character itself"),)) from None
        raise


def _has_lone_surrogate(body: bytes) -> bool:
    if not _SURROGATE_ESCAPE.search(body):
        return False
    try:
        json.dumps(json.loads(body, parse_int=str, parse_float=str), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False
