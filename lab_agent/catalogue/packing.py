"""The fewest tubes: bin packing with pieces that may not go together.

Up to `EXACT` pieces the answer is the fewest possible (every way to divide the pieces is covered, by dynamic programming over
subsets). Above, it is first-fit decreasing with its emptiest tubes packed again exactly: at most 11/9 of the fewest and one more
where all pieces go together, and the fewest whenever it meets the lower bound, which comes with every answer. The result
depends on the pieces in the order given; callers sort them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

EXACT = 12
Together = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Packing:
    """Tubes as tuples of piece indexes; `lower_bound` is a number of tubes below which no packing exists."""

    tubes: tuple[tuple[int, ...], ...]
    lower_bound: int


def pack(sizes: Sequence[int], room: int | None, together: Together) -> Packing:
    """Divide the pieces over tubes.

    `sizes` are whole units, none above `room`; `room` None has no limit. `together(i, j)` says whether two pieces may share.
    """
    apart = [sum(1 << other for other in range(len(sizes)) if other != i and not together(i, other)) for i in range(len(sizes))]
    bound = _lower_bound(sizes, room, apart)
    tubes = _first_fit(sizes, room, apart)
    if len(tubes) > bound:
        tubes = _repack(tubes, sizes, room, apart)
        bound = len(tubes) if len(sizes) <= EXACT else bound
    return Packing(tuple(tuple(tube) for tube in tubes), bound)


def _lower_bound(sizes: Sequence[int], room: int | None, apart: Sequence[int]) -> int:
    by_volume = -(-sum(sizes) // room) if room else 0
    by_size = sum(1 for size in sizes if room is not None and 2 * size > room)
    return max(by_volume, by_size, _clique(apart), min(1, len(sizes)))


def _clique(apart: Sequence[int]) -> int:
    """The size of one set of pieces of which no two go together, found greedily."""
    chosen: list[int] = []
    for i in sorted(range(len(apart)), key=lambda i: -apart[i].bit_count()):
        if all(apart[i] >> other & 1 for other in chosen):
            chosen.append(i)
    return len(chosen)


def _first_fit(sizes: Sequence[int], room: int | None, apart: Sequence[int]) -> list[list[int]]:
    tubes: list[list[int]] = []
    loads: list[int] = []
    masks: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        for t, load in enumerate(loads):
            if (room is None or load + sizes[i] <= room) and not masks[t] & apart[i]:
                break
        else:
            t = len(tubes)
            tubes.append([])
            loads.append(0)
            masks.append(0)
        tubes[t].append(i)
        loads[t] += sizes[i]
        masks[t] |= 1 << i
    return tubes


def _repack(tubes: list[list[int]], sizes: Sequence[int], room: int | None, apart: Sequence[int]) -> list[list[int]]:
    """Pack the emptiest tubes again, as many as hold at most `EXACT` pieces, in the fewest tubes: never worse than before."""
    kept = sorted(tubes, key=lambda tube: -sum(sizes[i] for i in tube))
    again: list[int] = []
    while kept and len(again) + len(kept[-1]) <= EXACT:
        again += kept.pop()
    again.sort()
    inner = [sum(1 << n for n, other in enumerate(again) if apart[i] >> other & 1) for i in again]
    return kept + [[again[n] for n in tube] for tube in _fewest([sizes[i] for i in again], room, inner)]


def _fewest(sizes: Sequence[int], room: int | None, apart: Sequence[int]) -> list[list[int]]:
    fits = _subsets_that_fit(sizes, room, apart)
    count = [0] * len(fits)
    tube = [0] * len(fits)
    for mask in range(1, len(fits)):
        lowest = mask & -mask
        rest = mask ^ lowest
        best = len(sizes) + 1
        part = rest
        while True:  # every subset that holds the lowest piece
            if fits[part | lowest] and count[rest ^ part] + 1 < best:
                best, tube[mask] = count[rest ^ part] + 1, part | lowest
            if part == 0:
                break
            part = (part - 1) & rest
        count[mask] = best
    found, left = [], len(fits) - 1
    while left:
        found.append([i for i in range(len(sizes)) if tube[left] >> i & 1])
        left ^= tube[left]
    return found


def _subsets_that_fit(sizes: Sequence[int], room: int | None, apart: Sequence[int]) -> list[bool]:
    total = [0] * (1 << len(sizes))
    fits = [True] * len(total)
    for mask in range(1, len(total)):
        last = mask.bit_length() - 1
        rest = mask ^ (1 << last)
        total[mask] = total[rest] + sizes[last]
        fits[mask] = fits[rest] and not apart[last] & rest and (room is None or total[mask] <= room)
    return fits
