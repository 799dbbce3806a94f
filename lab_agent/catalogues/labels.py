"""Labels out of pools, reserved in the store: never given twice, also by several processes, and never given again.

A pool is held for the length of one transaction, so its numbers go out one after the other. How far they went is kept by pattern
and beginning of the range, so that a range may be changed at will: what was given of another one is left out. A basket that is
asked again gets its labels again, until an order has used one of them: then it is another collection, with labels of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.labels import TubeLabels, basket_key, second_shapes
from lab_agent.catalogue.pools import Pool, Stretch, pool_of, second_pool
from lab_agent.catalogue.tubes import Tube
from lab_agent.catalogues.mark import Mark, Marks
from lab_agent.domain.journal import Alert
from lab_agent.domain.offer import LabelGiven
from lab_agent.errors import LabAgentError
from lab_agent.ports.store import Store, UnitOfWork


class PoolEmptyError(LabAgentError):
    """A pool of labels has no number left."""

    def __init__(self, pool: str) -> None:
        super().__init__(f"The pool of labels {pool!r} is used up; give it a new range in the settings.")
        self.pool = pool


@dataclass(frozen=True, slots=True)
class Wanted:
    """A label that is wanted: for which tube, first or of which second shape (`place`), and from which pool."""

    tube: int
    place: str
    pool: Pool


class PoolLabels:
    """Labels from the pools of the settings. A contract that no pool serves gets none."""

    def __init__(self, store: Store, pools: tuple[Pool, ...], mark: Mark | None, now: Callable[[], datetime]) -> None:
        self._store = store
        self._pools = pools
        self._mark = mark
        self._now = now

    async def labels(self, basket: Basket, tubes: tuple[Tube, ...], version: str) -> tuple[TubeLabels, ...]:
        """Give the labels of these tubes. Raises `PoolEmptyError`, and what the store raises."""
        wanted = self._wanted(basket, tubes)
        if not wanted:
            return (TubeLabels(),) * len(tubes)
        key, now = basket_key(basket, version), self._now()
        try:
            given = await self._store.run(lambda uow: self._given(uow, key, wanted, now))
        except PoolEmptyError as exc:
            await self._store.run(partial(_say_empty, empty=exc, now=now))
            raise
        return tuple(_of_tube(place, wanted, given) for place in range(len(tubes)))

    def _wanted(self, basket: Basket, tubes: tuple[Tube, ...]) -> tuple[Wanted, ...]:
        contract = basket.contract.code
        first = pool_of(self._pools, contract)
        wanted = [Wanted(number, f"{number}", first) for number in range(len(tubes))] if first else []
        for number, tube in enumerate(tubes):
            found = ((shape, second_pool(self._pools, contract, shape)) for shape in second_shapes(basket, tube))
            wanted += [Wanted(number, f"{number} {shape}", pool) for shape, pool in found if pool]
        return tuple(wanted)

    def _given(self, uow: UnitOfWork, key: str | None, wanted: tuple[Wanted, ...], now: datetime) -> dict[str, str]:
        """The labels by place: those that the basket has already, else new ones."""
        pools = sorted({each.pool for each in wanted}, key=lambda pool: (pool.pattern, pool.first))  # in one order: no deadlock
        held = {pool: uow.labels.hold(pool.pattern, pool.first) for pool in pools}
        had = _newest_unused(uow.labels.of_basket(key)) if key else {}
        if all(each.place in had for each in wanted):
            return had
        return self._new(uow, key, wanted, held, now)

    def _new(
        self, uow: UnitOfWork, key: str | None, wanted: tuple[Wanted, ...], held: Mapping[Pool, Mapping[int, int]], now: datetime
    ) -> dict[str, str]:
        marks = self._mark.read() if self._mark else {}
        given = {pool.pattern: stretches(pool, following, marks) for pool, following in held.items()}
        labels = {}
        for each in wanted:
            labels[each.place] = _take(uow, each, given[each.pool.pattern], key, now)
        if self._mark:  # before the commit: a label that was marked and never given is lost, one given twice is worse
            self._mark.raise_to(_marks({pool: pool.next_number(given[pool.pattern]) - 1 for pool in held}))
        for pool in held:
            uow.labels.move(pool.pattern, pool.first, pool.next_number(given[pool.pattern]))
            _warn(uow, pool, pool.left(given[pool.pattern]), now)
        uow.commit()
        return labels


def stretches(pool: Pool, following: Mapping[int, int], marks: Marks) -> list[Stretch]:
    """What was given of the pool's pattern, as the store and the mark know it."""
    marked = marks.get(pool.pattern, {})
    return [*following.items(), *((first, last + 1) for first, last in marked.items())]


def _marks(last: Mapping[Pool, int]) -> Marks:
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for pool, number in last.items():
        found[pool.pattern][pool.first] = number
    return found


def _newest_unused(given: tuple[LabelGiven, ...]) -> dict[str, str]:
    """The labels by place that a basket was given last; none if any of these is used: older ones may stand on drawn tubes."""
    newest = {each.place: each for each in given if each.given_at == given[-1].given_at}
    if any(each.used_at for each in newest.values()):
        return {}
    return {place: each.label for place, each in newest.items()}


def _take(uow: UnitOfWork, wanted: Wanted, given: list[Stretch], key: str | None, now: datetime) -> str:
    """The next label of a pool; `given` learns of it."""
    pool = wanted.pool
    while (number := pool.next_number(given)) <= pool.last:
        if given and given[-1][0] == pool.first:
            given.pop()  # the new stretch holds it: many numbers that another pool has given are passed one by one
        given.append((pool.first, number + 1))
        label = pool.label(number)
        made = LabelGiven(label=label, pool=pool.name, serial=number, basket=key, place=wanted.place, given_at=now)
        if uow.labels.add(made):  # False: another pool has given the same barcode
            return label
    raise PoolEmptyError(pool.name)


def _of_tube(tube: int, wanted: tuple[Wanted, ...], given: Mapping[str, str]) -> TubeLabels:
    second = tuple(given[each.place] for each in wanted if each.tube == tube and each.pool.second)
    return TubeLabels(given.get(f"{tube}"), second)


def _warn(uow: UnitOfWork, pool: Pool, left: int, now: datetime) -> None:
    uow.book.close_alert(empty_alert(pool.name), now=now)
    if left < pool.warn_below:
        text = f"the pool of labels {pool.name} has {left} left; give it a new range in the settings ([[api.pools]])"
        uow.book.open_alert(Alert(key=low_alert(pool.name), text=text, opened_at=now))
    else:
        uow.book.close_alert(low_alert(pool.name), now=now)


def _say_empty(uow: UnitOfWork, empty: PoolEmptyError, now: datetime) -> None:
    uow.book.open_alert(Alert(key=empty_alert(empty.pool), text=str(empty), opened_at=now))
    uow.commit()


def low_alert(pool: str) -> str:
    """Name of the alert of a pool that runs low."""
    return f"labels.{pool}.low"


def empty_alert(pool: str) -> str:
    """Name of the alert of a pool that is used up."""
    return f"labels.{pool}.empty"
