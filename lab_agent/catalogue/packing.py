"""The fewest tubes: bin packing with pieces that may not go together.

First-fit decreasing comes first: at most 11/9 of the fewest and one more where all pieces go together. Where it needs more than
the lower bound, a search (`fewest`) looks for one tube less, again and again, until there is none. Its steps are limited (`STEPS`
and `STEPS_PER_PIECE`), so that it takes a quarter of a second at the most for 200 pieces; an answer that was not proven to be
the fewest by then has a lower bound that is below it. The result depends on the pieces in the order given, and on no clock;
callers sort them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab_agent.catalogue.fewest import ExactPacker, StepLimitExceededError, TubeContent

BASE_STEPS, STEPS_PER_PART = 100_000, 10_000
Compatible = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Packing:
    """Tubes as tuples of piece indexes; `lower_bound` is a number of tubes below which no packing exists."""

    tubes: tuple[tuple[int, ...], ...]
    lower_bound: int


def pack(sizes: Sequence[int], capacity: int | None, compatible: Compatible) -> Packing:
    """Divide the pieces over tubes.

    `sizes` are whole units, none above `room`; `room` None has no limit. `together(i, j)` says whether two pieces may share.
    """
    apart = [sum(1 << other for other in range(len(sizes)) if other != i and not compatible(i, other)) for i in range(len(sizes))]
    bound = _lower_bound(sizes, capacity, apart)
    tubes = _first_fit_decreasing(sizes, capacity, apart)
    if len(tubes) > bound:
        tubes, bound = _search_fewer_tubes(tubes, bound, sizes, capacity, apart)
    return Packing(tuple(tuple(tube) for tube in tubes), bound)


def _lower_bound(sizes: Sequence[int], capacity: int | None, conflicts: Sequence[int]) -> int:
    return max(_volume_bound(sizes, capacity) if capacity else 0, _conflict_clique_size(conflicts), min(1, len(sizes)))


def _volume_bound(sizes: Sequence[int], capacity: int) -> int:
    """The bound L2 of Martello and Toth: no two large pieces share, and small ones go into what these leave free."""
    large = [size for size in sizes if 2 * size > capacity]
    found, volume = len(large), 0
    for small in sorted((size for size in sizes if 2 * size <= capacity), reverse=True):
        volume += small
        free = sum(capacity - size for size in large if size + small <= capacity)
        found = max(found, len(large) - (free - volume) // capacity)
    return found


def _conflict_clique_size(conflicts: Sequence[int]) -> int:
    """The size of one set of pieces of which no two go together, found greedily."""
    chosen: list[int] = []
    for i in sorted(range(len(conflicts)), key=lambda i: -conflicts[i].bit_count()):
        if all(conflicts[i] >> other & 1 for other in chosen):
            chosen.append(i)
    return len(chosen)


def _first_fit_decreasing(sizes: Sequence[int], capacity: int | None, conflicts: Sequence[int]) -> list[list[int]]:
    tubes: list[list[int]] = []
    loads: list[int] = []
    masks: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        for t, load in enumerate(loads):
            if (capacity is None or load + sizes[i] <= capacity) and not masks[t] & conflicts[i]:
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


def _search_fewer_tubes(
    tubes: list[list[int]], bound: int, sizes: Sequence[int], capacity: int | None, conflicts: Sequence[int]
) -> tuple[list[list[int]], int]:
    """Fewer tubes, as long as they are found, and the bound that is proven by then."""
    sorts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        sorts[sizes[i], conflicts[i]].append(i)
    members = list(sorts.values())
    not_with = [sum(1 << n for n, other in enumerate(members) if conflicts[each[0]] >> other[0] & 1) for each in members]
    limit = sum(sizes) if capacity is None else capacity
    search = ExactPacker([sizes[each[0]] for each in members], not_with, limit, BASE_STEPS + STEPS_PER_PART * len(sizes))
    counts = tuple(map(len, members))
    try:
        while len(tubes) > bound:
            found = search.pack(counts, len(tubes) - 1)
            if found is None:
                return tubes, len(tubes)
            tubes = _assign_parts(found, members)
    except StepLimitExceededError:
        pass  # what was found so far holds
    return tubes, bound


def _assign_parts(contents: Sequence[TubeContent], members: Sequence[Sequence[int]]) -> list[list[int]]:
    """The pieces of each tube."""
    left = [iter(each) for each in members]
    return [[next(left[sort]) for sort, count in content for _ in range(count)] for content in contents]
