"""Labels from pools, allocated in the store so that no barcode is issued twice, also by several processes.

A pool is locked for one transaction, so its numbers are issued in order. The next number is stored by pattern and first number,
so a range can be changed at will: what was issued of another range is skipped. The same basket gets the same labels again until
an order has used one of them: from then on it is another collection, with labels of its own.

The highest number issued of each range is in a file, too, outside the database and its backups: a database restored from a backup
does not know the labels issued since; the file does, and issuing continues after it.
"""

from __future__ import annotations

import fcntl
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.labels import TubeLabels, basket_fingerprint, second_label_patterns
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import IssuedLabel
from lab_agent.catalogue.settings_check import find_contract_mismatches
from lab_agent.catalogue.tubes import Tube
from lab_agent.settings.api import ApiSettings
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import LabAgentError, Problem, StoreError
from lab_agent.shared.label_pools import LabelPool, NumberRange, find_pool, find_second_label_pool
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

LastNumbers = Mapping[str, Mapping[int, int]]
"""By pattern, and by the first number of the range: the last number issued."""


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """The file. Processes of one machine, or of a shared folder, share it."""

    path: Path

    def read(self) -> LastNumbers:
        """The last number of each range; empty if there is no file yet. Raises `StoreError` if it cannot be read."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be read") from exc
        try:
            return {pattern: {int(first): int(last) for first, last in of.items()} for pattern, of in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError) as exc:
            raise self._error("is damaged; restore its last copy, or remove it if no database backup was restored") from exc

    def raise_to(self, numbers: LastNumbers) -> None:
        """Write that these numbers were issued; a higher one in the file stays. On the disk when it returns."""
        try:
            with self._locked():
                raised = {pattern: dict(ranges) for pattern, ranges in self.read().items()}
                for pattern, ranges in numbers.items():
                    marks = raised.setdefault(pattern, {})
                    marks.update({first: max(last, marks.get(first, last)) for first, last in ranges.items()})
                write_atomically(self.path, json.dumps(raised, sort_keys=True).encode(), mode=0o644)
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be written") from exc

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _error(self, what: str) -> StoreError:
        return StoreError(f"The file of issued label numbers, {self.path}, {what}.")


def check_contracts(catalogue: Catalogue, exchange: Mapping[str, object], api: ApiSettings) -> list[Problem]:
    """Contracts that the settings name and the catalogue does not have, or the other way round."""
    named = {f"[[api.tokens]] {each.name}": each.contracts for each in api.tokens}
    named |= {f"[[api.basic]] {each.name}": each.contracts for each in api.basic}
    named |= {f"[[api.pools]] {each.name}": each.contracts for each in api.pools}
    return find_contract_mismatches(catalogue, exchange, named)


class PoolEmptyError(LabAgentError):
    """A label pool has no number left."""

    def __init__(self, pool: str) -> None:
        super().__init__(f"The label pool {pool!r} is used up; give it a new range in the settings.")
        self.pool = pool


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """A label to be issued: for which tube, as its first or second label (`tube_slot`), and from which pool."""

    tube: int
    tube_slot: str
    pool: LabelPool


class LabelAllocator:
    """Allocates labels from the configured pools. A contract without a pool gets none."""

    def __init__(
        self, store: Store, pools: tuple[LabelPool, ...], high_water_mark: HighWaterMark | None, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._pools = pools
        self._high_water_mark = high_water_mark
        self._now = now

    async def labels(self, basket: Basket, tubes: tuple[Tube, ...], version: str) -> tuple[TubeLabels, ...]:
        """Give the labels of these tubes. Raises `PoolEmptyError`, `StoreError`."""
        wanted = self._required_labels(basket, tubes)
        if not wanted:
            return (TubeLabels(),) * len(tubes)
        key, now = basket_fingerprint(basket, version), self._now()
        try:
            given = await self._store.transact(lambda uow: self._allocate(uow, key, wanted, now))
        except PoolEmptyError as exc:
            await self._store.transact(partial(_open_empty_alert, empty=exc, now=now))
            raise
        return tuple(_tube_labels(place, wanted, given) for place in range(len(tubes)))

    def _required_labels(self, basket: Basket, tubes: tuple[Tube, ...]) -> tuple[LabelRequest, ...]:
        contract = basket.contract.code
        first = find_pool(self._pools, contract)
        wanted = [LabelRequest(number, f"{number}", first) for number in range(len(tubes))] if first else []
        for number, tube in enumerate(tubes):
            found = (
                (shape, find_second_label_pool(self._pools, contract, shape)) for shape in second_label_patterns(basket, tube)
            )
            wanted += [LabelRequest(number, f"{number} {shape}", pool) for shape, pool in found if pool]
        return tuple(wanted)

    def _allocate(self, uow: UnitOfWork, key: str | None, wanted: tuple[LabelRequest, ...], now: datetime) -> dict[str, str]:
        """The labels by tube slot: those that the basket has already, else new ones."""
        pools = sorted({each.pool for each in wanted}, key=lambda pool: (pool.pattern, pool.first))  # in one order: no deadlock
        held = {pool: uow.issued_labels.lock_ranges(pool.pattern, pool.first) for pool in pools}
        had = _newest_unused(uow.issued_labels.list_for_basket(key)) if key else {}
        if all(each.tube_slot in had for each in wanted):
            return had
        return self._issue(uow, key, wanted, held, now)

    def _issue(
        self,
        uow: UnitOfWork,
        key: str | None,
        wanted: tuple[LabelRequest, ...],
        held: Mapping[LabelPool, Mapping[int, int]],
        now: datetime,
    ) -> dict[str, str]:
        marks = self._high_water_mark.read() if self._high_water_mark else {}
        given = {pool.pattern: issued_ranges(pool, following, marks) for pool, following in held.items()}
        labels = _issue_labels(uow, wanted, given, key, now)
        if self._high_water_mark:  # before the commit: a number that is lost is better than one issued twice
            self._high_water_mark.raise_to(_to_last_numbers({pool: pool.next_number(given[pool.pattern]) - 1 for pool in held}))
        for pool in held:
            uow.issued_labels.set_next_number(pool.pattern, pool.first, pool.next_number(given[pool.pattern]))
            _update_pool_alerts(uow, pool, pool.remaining(given[pool.pattern]), now)
        return labels


def issued_ranges(pool: LabelPool, following: Mapping[int, int], marks: LastNumbers) -> list[NumberRange]:
    """What was issued of the pool's pattern, according to the store and the high-water mark."""
    marked = marks.get(pool.pattern, {})
    return [*following.items(), *((first, last + 1) for first, last in marked.items())]


def _to_last_numbers(last: Mapping[LabelPool, int]) -> LastNumbers:
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for pool, number in last.items():
        found[pool.pattern][pool.first] = number
    return found


def _newest_unused(given: tuple[IssuedLabel, ...]) -> dict[str, str]:
    """The labels issued last for a basket, by tube slot; none if one of them is used: the others may be on drawn tubes."""
    newest = {each.tube_slot: each for each in given if each.issued_at == given[-1].issued_at}
    if any(each.used_at for each in newest.values()):
        return {}
    return {place: each.label for place, each in newest.items()}


def _issue_labels(
    uow: UnitOfWork,
    wanted: tuple[LabelRequest, ...],
    issued: Mapping[str, list[NumberRange]],
    key: str | None,
    now: datetime,
) -> dict[str, str]:
    """Issue the next labels of the pools, by tube slot, and add their numbers to `issued` (by pattern).

    All are written at once; one that another pool has issued before gets the number after it, in the next round.
    """
    labels: dict[str, str] = {}
    while pending := [each for each in wanted if each.tube_slot not in labels]:
        made = [_next_label(each, issued[each.pool.pattern], key, now) for each in pending]
        written = set(uow.issued_labels.add_all(made))
        for each in made:
            if each.label in written:
                written.remove(each.label)  # two pools may make the same barcode for one basket: it is the first one's
                labels[each.tube_slot] = each.label
    return labels


def _next_label(wanted: LabelRequest, issued: list[NumberRange], key: str | None, now: datetime) -> IssuedLabel:
    """The next label of a pool; its number is added to `issued`. Raises `PoolEmptyError`."""
    pool = wanted.pool
    number = pool.next_number(issued)
    if number > pool.last:
        raise PoolEmptyError(pool.name)
    if issued and issued[-1][0] == pool.first:
        issued.pop()  # the new range contains it: numbers that another pool has issued are skipped
    issued.append((pool.first, number + 1))
    label = pool.label(number)
    return IssuedLabel(label=label, pool=pool.name, serial=number, basket=key, tube_slot=wanted.tube_slot, issued_at=now)


def _tube_labels(tube: int, wanted: tuple[LabelRequest, ...], given: Mapping[str, str]) -> TubeLabels:
    second = tuple(given[each.tube_slot] for each in wanted if each.tube == tube and each.pool.second)
    return TubeLabels(given.get(f"{tube}"), second)


def _update_pool_alerts(uow: UnitOfWork, pool: LabelPool, left: int, now: datetime) -> None:
    close_alert(uow, empty_alert_key(pool.name), now)
    if left < pool.warn_below:
        condition, subject = low_alert_key(pool.name)
        open_alert(uow, Alert(condition=condition, subject=subject, detail=f"{left} left", since=now, opened_at=now))
    else:
        close_alert(uow, low_alert_key(pool.name), now)


def _open_empty_alert(uow: UnitOfWork, empty: PoolEmptyError, now: datetime) -> None:
    condition, subject = empty_alert_key(empty.pool)
    open_alert(uow, Alert(condition=condition, subject=subject, since=now, opened_at=now))


def low_alert_key(pool: str) -> AlertKey:
    """The alert of a pool that runs low."""
    return AlertKey(ConditionId.LABELS_LOW, pool)


def empty_alert_key(pool: str) -> AlertKey:
    """The alert of a pool that is used up."""
    return AlertKey(ConditionId.LABELS_EXHAUSTED, pool)
