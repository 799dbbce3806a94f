"""Whether a code can be what it claims to be: LOINC by its check digit, UCUM by its characters and brackets. Pure."""

from __future__ import annotations

import re

LOINC = "http://loinc.org"
UCUM = "http://unitsofmeasure.org"
_LOINC_PATTERN = re.compile(r"(\d{1,7})-(\d)", re.ASCII)
_VISIBLE_ASCII = re.compile(r"[!-~]+")


def is_loinc(code: str) -> bool:
    """Whether a code has the form of a LOINC code, and its check digit is right (modulus 10)."""
    found = _LOINC_PATTERN.fullmatch(code)
    return found is not None and check_digit(found[1]) == int(found[2])


def check_digit(number: str) -> int:
    """The modulus 10 check digit of a row of digits: from the right, every second one counts double, beginning with the last."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        doubled = int(digit) * (1 if place % 2 else 2)
        total += doubled - 9 if doubled > 9 else doubled
    return -total % 10


def is_visible_ascii(code: str) -> bool:
    """Whether a code is made of visible ASCII alone: a spreadsheet likes to make a dash of a hyphen, and a keyboard а of a."""
    return _VISIBLE_ASCII.fullmatch(code) is not None


def is_ucum(code: str) -> bool:
    """Whether a unit can be UCUM: visible ASCII, brackets and braces in pairs. What it means is not looked up."""
    open_ones = []
    pairs = {"]": "[", "}": "{", ")": "("}
    for character in code:
        if character in pairs.values():
            open_ones.append(character)
        elif character in pairs and (not open_ones or open_ones.pop() != pairs[character]):
            return False
    return is_visible_ascii(code) and not open_ones
