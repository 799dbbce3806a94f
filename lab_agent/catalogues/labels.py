"""Labels out of pools, reserved in the store: never given twice, also by several processes, and never given again.

A pool is held for the length of one transaction, so its numbers go out one after the other. A basket that is asked again gets
its labels again, until an order has used one of them: then it is another collection, with labels of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.labels import TubeLabels, basket_key, second_shapes
from lab_agent.catalogue.pools import Pool, pool_of, second_pool
from lab_agent.catalogue.tubes import Tube
from lab_agent.catalogues.mark import Mark
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
        pools = {each.pool.name: each.pool for each in wanted}
        following = {name: uow.labels.hold(name, pools[name].first) for name in sorted(pools)}  # in one order: no deadlock
        had = _newest_unused(uow.labels.of_basket(key)) if key else {}
        if all(each.place in had for each in wanted):
            return had
        return self._new(uow, key, wanted, following, now)

    def _new(
        self, uow: UnitOfWork, key: str | None, wanted: tuple[Wanted, ...], following: dict[str, int], now: datetime
    ) -> dict[str, str]:
        marks = self._mark.read() if self._mark else {}
        pools = {each.pool.name: each.pool for each in wanted}
        at = {name: next_number(pools[name], number, marks) for name, number in following.items()}
        given = {}
        for each in wanted:
            given[each.place] = _take(uow, each, at, key, now)
        if self._mark:  # before the commit: a label that was marked and never given is lost, one given twice is worse
            self._mark.raise_to({name: number - 1 for name, number in at.items()})
        for name, number in at.items():
            uow.labels.move(name, number)
            _warn(uow, pools[name], number, now)
        uow.commit()
        return given


def _newest_unused(given: tuple[LabelGiven, ...]) -> dict[str, str]:
    """The labels by place that a basket was given last; none if any of these is used: older ones may stand on drawn tubes."""
    newest = {each.place: each for each in given if each.given_at == given[-1].given_at}
    if any(each.used_at for each in newest.values()):
        return {}
    return {place: each.label for place, each in newest.items()}


def next_number(pool: Pool, following: int, marks: Mapping[str, int]) -> int:
    """The number that a pool gives next: behind what the store and the mark know, and in its range."""
    return max(following, marks.get(pool.name, 0) + 1, pool.first)


def _take(uow: UnitOfWork, wanted: Wanted, at: dict[str, int], key: str | None, now: datetime) -> str:
    pool = wanted.pool
    while (number := at[pool.name]) <= pool.last:
        at[pool.name] = number + 1
        label = pool.label(number)
        made = LabelGiven(label=label, pool=pool.name, serial=number, basket=key, place=wanted.place, given_at=now)
        if uow.labels.add(made):  # False: another pool has given the same barcode
            return label
    raise PoolEmptyError(pool.name)


def _of_tube(tube: int, wanted: tuple[Wanted, ...], given: Mapping[str, str]) -> TubeLabels:
    second = tuple(given[each.place] for each in wanted if each.tube == tube and each.pool.second)
    return TubeLabels(given.get(f"{tube}"), second)


def _warn(uow: UnitOfWork, pool: Pool, following: int, now: datetime) -> None:
    uow.book.close_alert(empty_alert(pool.name), now=now)
    left = pool.left(following)
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
