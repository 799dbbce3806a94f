"""Makes a list of steps that fails small by itself: delta debugging (ddmin, Zeller and Hildebrandt 2002)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


async def shrink(steps: Sequence[T], fails: Callable[[Sequence[T]], Awaitable[bool]], tries: int = 200) -> tuple[T, ...]:
    """Steps of these, in their order, that still fail; none of them can be left out alone, unless the `tries` did not suffice."""
    left, parts = list(steps), 2
    while left:
        for rest in _without_each_part(left, parts):
            tries -= 1
            if tries < 0:
                return tuple(left)
            if await fails(rest):
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(left):
                return tuple(left)
            parts = min(parts * 2, len(left))
    return ()


def _without_each_part(steps: list[T], parts: int) -> list[list[T]]:
    parts = min(parts, len(steps))
    bounds = [len(steps) * number // parts for number in range(parts + 1)]
    return [steps[:begin] + steps[end:] for begin, end in pairwise(bounds)]
