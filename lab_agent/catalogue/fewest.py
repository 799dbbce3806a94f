"""Whether pieces go into so many tubes: branch and bound over the contents of one tube after the other (bin completion).

Pieces that are alike in size, and in what they may not go with, are of one sort; what is left to pack is how many there are of
each sort. The next tube always takes a piece of the largest sort left, and only contents are tried that are not plainly worse
than others: nothing more goes in, and no piece may be exchanged for a larger one. What was found not to go is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Counts = tuple[int, ...]
"""How many pieces of each sort."""
TubeContent = tuple[tuple[int, int], ...]
"""What one tube holds: a sort, and how many pieces of it."""
_STEP_OVERHEAD = 16


class StepLimitExceededError(Exception):
    """The search was given up: it is not known whether there is a packing."""


@dataclass(slots=True)
class ExactPacker:
    """A search among sorts of these sizes, largest first; `apart` is a bit mask of sorts for each sort.

    `steps` is how much it may still do: a content that it looks at, finished or not, takes one for each sort, and `_OVERHEAD`.
    """

    sizes: Sequence[int]
    conflicts: Sequence[int]
    capacity: int
    remaining_steps: int
    _known_failures: dict[Counts, int] = field(default_factory=dict)

    def pack(self, counts: Counts, tubes: int) -> list[TubeContent] | None:
        """Give the contents of at most that many tubes; None where there is no such packing. Raises `OutOfStepsError`."""
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
        """What the next of so many tubes may hold; the fullest with large pieces first."""
        behind = [0] * (len(remaining) + 1)
        for sort in reversed(range(len(remaining))):
            behind[sort] = behind[sort + 1] + remaining[sort] * self.sizes[sort]
        waste = tubes * self.capacity - behind[0]
        if waste < 0:
            return
        first = next(sort for sort, count in enumerate(remaining) if count)
        chosen: list[tuple[int, int]] = []
        free, blocked = [self.capacity], [0]
        choices = [self._candidate_choices(remaining, behind, waste, range(first, first + 1), self.capacity, 0)]
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
        self, remaining: Counts, volume_from: Sequence[int], waste: int, sorts: range, free: int, blocked: int
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
        """Whether a piece more goes in, or one (not the first) may be exchanged for a larger one whose place it can take."""
        taken = dict(chosen)
        first = chosen[0][0]
        loose = [sort for sort, count in chosen if count > (sort == first)]
        for sort, count in enumerate(remaining):
            if count <= taken.get(sort, 0) or blocked >> sort & 1:
                continue
            size, lacking = self.sizes[sort], self.sizes[sort] - free
            if lacking <= 0:
                return True
            if any(lacking <= self.sizes[out] < size and not self.conflicts[out] & ~self.conflicts[sort] for out in loose):
                return True
        return False


def _subtract_content(counts: Counts, content: TubeContent) -> Counts:
    rest = list(counts)
    for sort, count in content:
        rest[sort] -= count
    return tuple(rest)
