"""The changes that no test finds, each with the reason why it may stay so: `survivors.txt`, read and compared.

In that file a line `# …` is a reason, for the lines after it. Each of these is the key of a change (`Change.key`), or `~` and a
regular expression that such keys match as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).with_name("survivors.txt")


@dataclass(slots=True)
class Survivors:
    """Why changes may survive: by their keys, and by patterns of keys."""

    by_key: dict[str, str] = field(default_factory=dict)
    by_pattern: list[tuple[re.Pattern[str], str]] = field(default_factory=list)

    def reason(self, key: str) -> str | None:
        """Why this one may survive; None if it may not."""
        if key in self.by_key:
            return self.by_key[key]
        return next((reason for pattern, reason in self.by_pattern if pattern.fullmatch(key)), None)


def read_survivors(text: str) -> Survivors:
    """Read the file's text. Raises `ValueError` for a line before the first reason."""
    found, reason = Survivors(), ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif not reason:
            raise ValueError(f"no reason before: {line}")
        elif line.startswith("~ "):
            found.by_pattern.append((re.compile(line.removeprefix("~ ")), reason))
        else:
            found.by_key[line] = reason
    return found
