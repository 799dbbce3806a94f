"""Codes and units of a result: what a reason may name, and carets that are no separators (OBX-6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lab_agent.lis.value_reading import has_invisible

_SHORT_CODE = re.compile(r"[!-~]{1,20}\Z")

_POWER_OF_TEN = re.compile(r"(?:.*[^\d.,])?10\s*\Z", re.ASCII | re.DOTALL)
_EXPONENT_OF_TEN = re.compile(r"\s*[+-]?1?\d(?![\d.,])", re.ASCII)
_UNIT_NAME = re.compile(r".*[^\W\d_]\)?\Z", re.DOTALL)
_EXPONENT_OF_UNIT = re.compile(r"(?:-[1-9]|[234])(?:\Z|\s*[/*.)])", re.ASCII)


def quotable_code(text: str) -> str:
    """A code of a message as a reason may name it; empty if it may be a free text, which may name the patient (law 7)."""
    return text if _SHORT_CODE.match(text) else ""


def has_control_character(text: str) -> bool:
    """Whether a code or unit holds a character that it cannot mean; unlike a text, it is not repaired."""
    return has_invisible(text) or any(char in "\t\r\n\x0b\x0c\x85" for char in text)


def join_powers(parts: Sequence[str], separator: str) -> list[str]:
    """Join the components of a field that were one word before its caret was taken for a separator: `10^9/L`, `kg/m^2`.

    A component that ends in ten, or in a unit's letter, and is followed by an exponent is no code with its name beside it.
    """
    return list(_joined(list(parts), separator))


def _joined(parts: list[str], separator: str) -> Iterator[str]:
    while parts:
        word = parts.pop(0)
        while parts and _is_power(word, parts[0], parts[1] if len(parts) > 1 else ""):
            word = f"{word}{separator}{parts.pop(0)}"
        yield word


def _is_power(base: str, exponent: str, after: str) -> bool:
    if _POWER_OF_TEN.match(base):
        return _EXPONENT_OF_TEN.match(exponent) is not None
    starts_own_power = _POWER_OF_TEN.match(exponent) and _EXPONENT_OF_TEN.match(after)
    return bool(_UNIT_NAME.match(base) and _EXPONENT_OF_UNIT.match(exponent)) and not starts_own_power
