"""The fewest tubes: exact bin packing of parts of which some may not share a tube.

First-fit decreasing comes first: at most 11/9 of the fewest and one more where all parts go together. Where it needs more than
the lower bound, `ExactPacker` looks for a packing with one tube less, again and again, until there is none: branch and bound over
the contents of one tube after the other (bin completion). Its steps are limited (`BASE_STEPS`, `STEPS_PER_PART`), so that it
takes a quarter of a second at most for 200 parts; a packing that was not proven to be the fewest by then has a lower bound below
it. The result depends on the parts in the order given, and on no clock; callers sort them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

BASE_STEPS, STEPS_PER_PART = 100_000, 10_000
Counts = tuple[int, ...]
"""How many parts of each sort."""
TubeContent = tuple[tuple[int, int], ...]
"""What one tube holds: a sort, and how many parts of it."""
_STEP_OVERHEAD = 16
Compatible = Callable[[int, int], bool]
"""Whether two parts, by index, may share a tube."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Tubes as tuples of part indexes; `lower_bound` is a number of tubes below which no packing exists."""

    tubes: tuple[tuple[int, ...], ...]
    lower_bound: int


def pack(sizes: Sequence[int], capacity: int | None, compatible: Compatible | None = None) -> Packing:
    """Divide the parts over tubes.

    `sizes` are whole units, none above `capacity`; `capacity` None is no limit. Without `compatible` all may share a tube.
    """
    apart = _conflicts(len(sizes), compatible) if compatible else [0] * len(sizes)
    bound = _lower_bound(sizes, capacity, apart)
    tubes = _first_fit_decreasing(sizes, capacity, apart)
    if len(tubes) > bound:
        tubes, bound = _search_fewer_tubes(tubes, bound, sizes, capacity, apart)
    return Packing(tuple(tuple(tube) for tube in tubes), bound)


def _conflicts(count: int, compatible: Compatible) -> list[int]:
    """A bit mask for each part of those that may not share its tube."""
    return [sum(1 << other for other in range(count) if other != i and not compatible(i, other)) for i in range(count)]


def _lower_bound(sizes: Sequence[int], capacity: int | None, conflicts: Sequence[int]) -> int:
    return max(_volume_bound(sizes, capacity) if capacity else 0, _conflict_clique_size(conflicts))


def _volume_bound(sizes: Sequence[int], capacity: int) -> int:
    """The bound L2 of Martello and Toth: no two large parts share, and small ones go into what these leave free."""
    large = [size for size in sizes if 2 * size > capacity]
    found, volume = len(large), 0
    for small in sorted((size for size in sizes if 2 * size <= capacity), reverse=True):
        volume += small
        free = sum(capacity - size for size in large if size + small <= capacity)
        found = max(found, len(large) - (free - volume) // capacity)
    return found


def _conflict_clique_size(conflicts: Sequence[int]) -> int:
    """The size of one set of parts of which no two go together, found greedily."""
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
    """The parts of each tube."""
    left = [iter(each) for each in members]
    return [[next(left[sort]) for sort, count in content for _ in range(count)] for content in contents]


class StepLimitExceededError(Exception):
    """The search was given up: it is not known whether there is a packing."""


@dataclass(slots=True)
class ExactPacker:
    """A search for a packing of parts of these sorts, largest first; `conflicts` is a bit mask of sorts for each sort.

    Parts that are alike in size and in their conflicts are one sort; what is left to pack is the count of each sort. The next
    tube always takes a part of the largest sort left, and a content is tried only if it is not plainly worse than another one:
    nothing more fits in, and no part may be exchanged for a larger one. Counts that were found not to fit are remembered.

    `remaining_steps` is how much it may still do: each content that it considers costs one step for each sort, and
    `_STEP_OVERHEAD`.
    """

    sizes: Sequence[int]
    conflicts: Sequence[int]
    capacity: int
    remaining_steps: int
    _known_failures: dict[Counts, int] = field(default_factory=dict)

    def pack(self, counts: Counts, tubes: int) -> list[TubeContent] | None:
        """Give the contents of at most that many tubes; None where there is no such packing. Raises `StepLimitExceededError`."""
        packed: list[TubeContent] = []
        states = [(counts, self._candidate_contents(counts, tubes))]
        while states:
            here, contents = states[-1]
            if (content := next(contents, None)) is None:
                self._known_failures[here] = tubes - len(states) + 1
                states.pop()
                del packed[-1:]
                continue
            rest = _subtract_content(here, content)
            left = tubes - len(states)
            if not any(rest):
                return [*packed, content]
            if left > self._known_failures.get(rest, 0):
                packed.append(content)
                states.append((rest, self._candidate_contents(rest, left)))
        return None

    def _candidate_contents(self, remaining: Counts, tubes: int) -> Iterator[TubeContent]:
        """What the next of so many tubes may hold; the fullest with large parts first."""
        behind = [*accumulate(map(mul, reversed(remaining), reversed(self.sizes)))][::-1]
        waste = tubes * self.capacity - behind[0]
        if waste < 0:
            return
        first = next(sort for sort, count in enumerate(remaining) if count)
        chosen: list[tuple[int, int]] = []
        free, blocked = [self.capacity], [0]
        choices = [self._candidate_choices(remaining, behind, waste, (first,), self.capacity, 0)]
        while choices:
            if choice := next(choices[-1], None):
                sort, count = choice
                chosen.append(choice)
                free.append(free[-1] - count * self.sizes[sort])
                blocked.append(blocked[-1] | self.conflicts[sort])
                following = range(sort + 1, len(remaining))
                choices.append(self._candidate_choices(remaining, behind, waste, following, free[-1], blocked[-1]))
                continue
            choices.pop()
            if chosen and free[-1] <= waste and not self._is_dominated(remaining, chosen, free[-1], blocked[-1]):
                yield tuple(chosen)
            del chosen[-1:]
            free.pop()
            blocked.pop()

    def _candidate_choices(
        self, remaining: Counts, volume_from: Sequence[int], waste: int, sorts: Iterable[int], free: int, blocked: int
    ) -> Iterator[tuple[int, int]]:
        """What may go into a tube next; nothing where all that is left would leave too much of the tube empty."""
        self.remaining_steps -= _STEP_OVERHEAD + len(remaining)
        if self.remaining_steps < 0:
            raise StepLimitExceededError
        for sort in sorts:
            if free - volume_from[sort] > waste:
                return
            size = self.sizes[sort]
            if remaining[sort] and size <= free and not blocked >> sort & 1:
                most = min(remaining[sort], free // size) if size else remaining[sort]
                yield from ((sort, count) for count in range(most, 0, -1))

    def _is_dominated(self, remaining: Counts, chosen: list[tuple[int, int]], free: int, blocked: int) -> bool:
        """Whether a part more goes in, or one may be exchanged for a larger one whose place it can take."""
        taken = dict(chosen)
        for sort, count in enumerate(remaining):
            if count <= taken.get(sort, 0) or blocked >> sort & 1:
                continue
            size, lacking = self.sizes[sort], self.sizes[sort] - free
            if lacking <= 0:
                return True
            if any(lacking <= self.sizes[out] < size and not self.conflicts[out] & ~self.conflicts[sort] for out in taken):
                return True
        return False


def _subtract_content(counts: Counts, content: TubeContent) -> Counts:
    rest = list(counts)
    for sort, count in content:
        rest[sort] -= count
    return tuple(rest)
