"""Shapes of numbers as the interface document writes them: `0000-0000`, `00000-XXXXX-00000000`.

`0` stands for a digit, `X` for a letter or a digit, and anything else for itself (interface: Create order, rules 3 and 4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN_CLASSES = {"0": "[0-9]", "X": "[0-9A-Za-z]"}


@dataclass(frozen=True, slots=True)
class IdentifierPattern:
    """One such shape."""

    text: str

    def matches(self, value: str) -> bool:
        """Whether the value has this shape."""
        pattern = "".join(_PATTERN_CLASSES.get(char) or re.escape(char) for char in self.text)
        return re.fullmatch(pattern, value) is not None

    def __str__(self) -> str:
        return self.text
