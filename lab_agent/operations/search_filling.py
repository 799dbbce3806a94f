"""Fills in what orders are searched by, beside the work: of orders from before the search, and of those of a former program.

An upgrade cannot: it has no key for the digests of patients, and would hold the database until it is through. So each agent looks
once through all orders, in portions, each written by itself. What is there is not written again, so a look that was cut short is
simply begun anew. When one is through, and no program works that stores orders without it, that is noted, and nobody looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from lab_agent.orders.patient_data import known_patient
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import CryptoError, LabAgentError
from lab_agent.shared.ids import OrderKey
from lab_agent.store.search_index import SearchPortion
from lab_agent.store.unit_of_work import Store, UnitOfWork

K = TypeVar("K")
T = TypeVar("T")
log = structlog.get_logger(__name__)

FILLED_KEY = "search.filled"
"""Under this key it is stored that nothing lacks: the form of what is searched by."""
FORM = "1"
"""Another one lets every agent look again."""
FIRST_SCHEMA = "0003"
"""A program of an older schema stores orders without what they are searched by."""
_LOOKED_AT, _WRITTEN = 500, 20
_PAUSE, _RETRY, _AGAIN = 0.05, 60.0, 3600.0
"""Seconds between two portions; until the next try after a failure; and until the next look while a former program works."""


@dataclass(frozen=True, slots=True)
class Filled:
    """How many orders were given their numbers, how many their patients, and how many patients cannot be read."""

    orders: int = 0
    patients: int = 0
    unreadable: int = 0

    def __add__(self, other: Filled) -> Filled:
        return Filled(self.orders + other.orders, self.patients + other.patients, self.unreadable + other.unreadable)


@dataclass(slots=True)
class SearchFiller:
    """Looks once through all orders. Several may at the same time: what one has written, another one leaves."""

    store: Store
    clock: Clock
    pause: float = _PAUSE

    async def run(self) -> None:
        """Fill in until nothing lacks, then rest until cancelled; a failure is tried again later."""
        while True:
            try:
                if await self.fill() is None or await self._note_filled():
                    break
                wait = _AGAIN
            except LabAgentError as exc:
                log.info("search not filled yet", action="search_filling_failed", reason=str(exc))
                wait = _RETRY
            await asyncio.sleep(wait)
        await asyncio.Event().wait()

    async def fill(self) -> Filled | None:
        """Look through all orders; None where that has been done. Raises `LabAgentError`; what was written by then stays."""
        if await self.store.run_read_only(lambda uow: uow.key_values.get(FILLED_KEY)) == FORM:
            return None
        by_number = await self._look(lambda uow, after: uow.search.lacking_terms(after=after, limit=_LOOKED_AT), _add_terms)
        by_patient = await self._look(lambda uow, after: uow.search.lacking_digests(after=after, limit=_LOOKED_AT), _add_digests)
        filled = by_number + by_patient
        log.info(
            "search filled",
            action="search_filled",
            orders=filled.orders,
            digests=filled.patients,
            unreadable=filled.unreadable,
        )
        return filled

    async def _look(
        self, look: Callable[[UnitOfWork, OrderKey], SearchPortion], add: Callable[[UnitOfWork, Sequence[OrderKey]], Filled]
    ) -> Filled:
        filled, after = Filled(), OrderKey("")
        while True:
            portion = await self.store.run_read_only(partial(_call, look, after))
            for start in range(0, len(portion.lacking), _WRITTEN):
                filled += await self.store.transact(partial(_call, add, portion.lacking[start : start + _WRITTEN]))
                await asyncio.sleep(self.pause)
            if portion.last is None:
                return filled
            after = portion.last

    async def _note_filled(self) -> bool:
        """Note that nothing lacks; False while a program works that stores orders without it."""
        now = self.clock.now()

        def note(uow: UnitOfWork) -> bool:
            if any(each.schema < FIRST_SCHEMA and each.lives(now) for each in uow.programs.all()):
                return False
            uow.key_values.set(FILLED_KEY, FORM)
            return True

        return await self.store.transact(note)


def _call(work: Callable[[UnitOfWork, K], T], given: K, uow: UnitOfWork) -> T:
    return work(uow, given)


def _add_terms(uow: UnitOfWork, keys: Sequence[OrderKey]) -> Filled:
    for key in keys:
        uow.orders.lock(key)  # whoever changes its numbers has it meanwhile
    uow.search.add_terms(keys)
    return Filled(orders=len(keys))


def _add_digests(uow: UnitOfWork, keys: Sequence[OrderKey]) -> Filled:
    """Index what is stored now: whoever erases, purges or assesses an order has its lock meanwhile."""
    filled = Filled()
    for key in keys:
        uow.orders.lock(key)
        try:
            identity = uow.vault.identity(key)
            known = None if identity is None else known_patient(identity)
        except CryptoError:
            known, identity = None, b""
        if known is not None:
            uow.vault.index_patient(key, known.search_terms)
            filled += Filled(patients=1)
        elif identity is not None:
            filled += Filled(unreadable=1)
    return filled
