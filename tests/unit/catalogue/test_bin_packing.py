"""The fewest tubes: compared with all ways of small baskets, and proven for larger ones within the steps that a search has."""

from __future__ import annotations

from random import Random

import pytest

from lab_agent.catalogue.bin_packing import ExactPacker, Packing, StepLimitExceededError, pack

Apart = set[tuple[int, int]]
"""Pairs of parts that may not share a tube, the larger index first."""
HARD = (16, 121, 129, 164, 265, 368, 657)
"""Seeds of baskets whose minimum is found and proven only if no bound and no pruning of the search is weaker than it is."""


def pack_apart(sizes: list[int], capacity: int | None, apart: Apart) -> Packing:
    """Pack, and check that each part is in one tube that holds it and goes with the others."""
    packing = pack(sizes, capacity, lambda i, j: (max(i, j), min(i, j)) not in apart)
    assert sorted(i for tube in packing.tubes for i in tube) == list(range(len(sizes)))
    assert all(capacity is None or sum(sizes[i] for i in tube) <= capacity for tube in packing.tubes)
    assert not any((i, j) in apart for tube in packing.tubes for i in tube for j in tube)
    return packing


def random_pairs(random: Random, count: int, share: float) -> Apart:
    return {(i, j) for i in range(count) for j in range(i) if random.random() < share}


def count_fewest(sizes: list[int], capacity: int | None, apart: Apart) -> int:
    """Try each part in each tube, and in one more."""
    room = sum(sizes) if capacity is None else capacity
    best = len(sizes)

    def place(part: int, tubes: list[list[int]]) -> None:
        nonlocal best
        if len(tubes) >= best:
            return
        if part == len(sizes):
            best = len(tubes)
            return
        for tube in tubes:
            if sum(sizes[i] for i in tube) + sizes[part] <= room and not any((part, i) in apart for i in tube):
                tube.append(part)
                place(part + 1, tubes)
                tube.pop()
        place(part + 1, [*tubes, [part]])

    place(0, [])
    return best


@pytest.mark.parametrize("capacity", [6, 8, 10, 12, 15, 20, 30, 45, None])
def test_small_baskets_get_the_fewest_tubes(capacity: int | None) -> None:
    random = Random(f"{capacity}")
    for _ in range(150):
        count = random.randint(2, 9)
        largest = (capacity or 10) // random.choice((1, 1, 2))
        sizes = [random.randint(0, largest) for _ in range(count)]
        apart = random_pairs(random, count, random.choice((0, 0.1, 0.25, 0.5)))
        packing = pack_apart(sizes, capacity, apart)
        fewest = count_fewest(sizes, capacity, apart)
        assert (len(packing.tubes), packing.lower_bound) == (fewest, fewest)


@pytest.mark.parametrize("capacity", [10, 12, 20, 30, 45, 100])
def test_parts_of_full_tubes_fit_into_as_many(capacity: int) -> None:
    """Also where some may not share a tube with parts of another one."""
    random = Random(f"{capacity}")
    for _ in range(25):
        cut: list[tuple[int, int]] = []
        tubes = random.randint(2, 7)
        for tube in range(tubes):
            left = capacity
            while left:
                size = min(left, random.randint(max(1, capacity // 6), random.choice((capacity // 2, capacity))))
                cut.append((size, tube))
                left -= size
        random.shuffle(cut)
        pairs = random_pairs(random, len(cut), random.choice((0, 0, 0.1, 0.3, 0.6)))
        packing = pack_apart([size for size, _ in cut], capacity, {(i, j) for i, j in pairs if cut[i][1] != cut[j][1]})
        assert len(packing.tubes) == packing.lower_bound == tubes


@pytest.mark.parametrize("seed", [HARD[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in HARD[1:])])
def test_hard_baskets_get_a_proven_minimum(seed: int) -> None:
    """Within the steps of a search, which are too few for one that tries what cannot lead to fewer tubes."""
    random = Random(seed)
    count = random.randint(12, 90)
    least, most = random.choice(((0.1, 0.5), (0.2, 0.5), (0.05, 1), (0.25, 0.6), (0.3, 0.7), (0.01, 0.3)))
    capacity = random.choice((20, 45, 100, 1000))
    sizes = [max(1, int(random.uniform(least, most) * capacity)) for _ in range(count)]
    packing = pack_apart(sizes, capacity, random_pairs(random, count, random.choice((0, 0.05, 0.1, 0.25, 0.5))))
    assert len(packing.tubes) == packing.lower_bound


def test_few_parts_are_packed_as_by_hand() -> None:
    assert (len(pack([4] * 5, 10).tubes), pack([4] * 5, 10).lower_bound) == (3, 3)
    assert pack([], 10) == pack([], None) == Packing((), 0)
    assert pack([5, 5, 5], None).tubes == ((0, 1, 2),)
    assert len(pack([5, 5, 5], None, lambda _i, _j: False).tubes) == 3
    assert len(pack([4, 4, 5, 5, 6, 6, 2, 3, 5], 10).tubes) == 4, "first-fit decreasing needs five"


def test_parts_that_fail_in_two_tubes_fit_into_three() -> None:
    each_with_none = [0b110, 0b101, 0b011]
    search = ExactPacker([3, 2, 1], each_with_none, 10, 10_000)
    assert search.pack((1, 1, 1), 2) is None
    assert search.pack((1, 1, 1), 3) == [((0, 1),), ((1, 1),), ((2, 1),)]


def test_search_is_given_up_after_its_last_step() -> None:
    def search(steps: int) -> int:
        packer = ExactPacker(list(range(60, 20, -1)), [0] * 40, 100, steps)
        assert packer.pack((1,) * 40, 20)
        return packer.remaining_steps

    needed = 1_000_000 - search(1_000_000)
    assert search(needed) == 0
    with pytest.raises(StepLimitExceededError):
        search(needed - 1)
