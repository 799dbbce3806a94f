"""How far a long piece of work on the database is, told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Tell = Callable[[int, int], object]
"""Takes what is done, and what there is to do in all, in a unit of the work's own. Any thread may call it."""


def tell_nobody(done: int, total: int, /) -> None:
    """For work that nobody watches."""


class Target(Protocol):
    """Where content goes, such as a file."""

    def write(self, content: bytes, /) -> object:
        """Take it."""
        ...


class CountedTarget:
    """A target that tells how many bytes went there, after those of the steps `before`; never more than `size` of its own."""

    def __init__(self, target: Target, tell: Tell, *, before: int, size: int, total: int) -> None:
        self._target, self._tell = target, tell
        self._before, self._size, self._total = before, size, total
        self._written = 0

    def write(self, content: bytes, /) -> None:
        """Write it, and tell."""
        self._target.write(content)
        self._written += len(content)
        self._tell(self._before + min(self._written, self._size), self._total)
