"""Pools of barcodes, and the patterns of second barcodes and old order numbers.

Pure, and the only place that knows what a pool is: settings read pools, the catalogue asks which pool fits, the store reserves
numbers of them. A pool makes barcodes of a pattern, a range of numbers, and a check digit where the scanners expect one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

_PATTERN_CLASSES = {"0": "[0-9]", "X": "[0-9A-Za-z]"}


@dataclass(frozen=True, slots=True)
class IdentifierPattern:
    """A pattern as the interface document writes it: `0000-0000`, `00000-XXXXX-00000000` (Create order, rules 3 and 4).

    `0` stands for a digit, `X` for a letter or a digit, and anything else for itself.
    """

    text: str

    def matches(self, value: str) -> bool:
        """Whether the value fits the pattern."""
        pattern = "".join(_PATTERN_CLASSES.get(char) or re.escape(char) for char in self.text)
        return re.fullmatch(pattern, value) is not None

    def __str__(self) -> str:
        return self.text


DIGIT_PLACEHOLDER, CHECK_DIGIT_PLACEHOLDER = "#", "%"
"""In a pattern: a digit of the number (there may be several), and the place of the check digit."""
NumberRange = tuple[int, int]
"""Numbers of a pattern that were allocated, by whichever pool: the first, and the one after the last."""


@dataclass(frozen=True, slots=True)
class LabelPool:
    """One pool. With `contracts` None it serves every contract that no other pool names; `second` makes second barcodes."""

    name: str
    pattern: str
    first: int
    last: int
    check_digit: str = "none"
    contracts: frozenset[str] | None = None
    second: bool = False
    warn_below: int = 0

    def label(self, number: int) -> str:
        """Format the barcode with this number."""
        digits = iter(str(number).zfill(self.pattern.count(DIGIT_PLACEHOLDER)))
        text = "".join(next(digits) if char == DIGIT_PLACEHOLDER else char for char in self.pattern)
        if self.check_digit == "none":
            return text
        payload_digits = [int(char) for char in text if char.isascii() and char.isdecimal()]
        return text.replace(CHECK_DIGIT_PLACEHOLDER, str(CHECK_DIGIT_FUNCTIONS[self.check_digit](payload_digits)), 1)

    def matches(self, pattern: IdentifierPattern) -> bool:
        """Whether the barcodes of the pool fit that pattern."""
        return all(pattern.matches(self.label(number)) for number in (self.first, self.last))

    def next_number(self, allocated: Iterable[NumberRange]) -> int:
        """The first number of the pool that is in none of the ranges; more than `last` where all are allocated."""
        number = self.first
        for start, end in sorted(allocated):
            if start <= number < end:
                number = end
        return number

    def remaining(self, allocated: Iterable[NumberRange]) -> int:
        """How many numbers of the pool are in none of the ranges."""
        count, number = 0, self.first
        for start, end in sorted(allocated):
            count += max(0, min(start, self.last + 1) - number)
            number = max(number, end)
        return count + max(0, self.last + 1 - number)


def find_pool(pools: tuple[LabelPool, ...], contract: str) -> LabelPool | None:
    """The pool of a contract's labels: the one that names it, else the one for every contract; None if there is none."""
    fitting = [each for each in pools if not each.second and (each.contracts is None or contract in each.contracts)]
    return min(fitting, key=lambda each: each.contracts is None, default=None)


def find_second_label_pool(pools: tuple[LabelPool, ...], contract: str, pattern: IdentifierPattern) -> LabelPool | None:
    """The pool of a contract's second barcodes of that pattern; None where the partner has its own."""
    ours = (each for each in pools if each.second and each.matches(pattern))
    fitting = [each for each in ours if each.contracts is None or contract in each.contracts]
    return min(fitting, key=lambda each: each.contracts is None, default=None)


def luhn_check_digit(digits: list[int]) -> int:
    """The check digit of ISO/IEC 7812: every second digit from the right doubled, digit sums added, up to the next ten."""
    doubled = [each if place % 2 else each * 2 for place, each in enumerate(reversed(digits))]
    return -sum(each // 10 + each % 10 for each in doubled) % 10


def gs1_check_digit(digits: list[int]) -> int:
    """The check digit of EAN, UPC and SSCC: weights 3 and 1 from the right, up to the next ten."""
    return -sum(each * (1 if place % 2 else 3) for place, each in enumerate(reversed(digits))) % 10


CHECK_DIGIT_FUNCTIONS: Mapping[str, Callable[[list[int]], int]] = {"luhn": luhn_check_digit, "gs1": gs1_check_digit}
