"""Probes of the laboratory's API: its life at both addresses, and the catalogue that it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from typing_extensions import override

from lab_agent.operations.api_health import ApiHealth
from lab_agent.operations.monitor import Finding, Probe
from lab_agent.shared.clock import Clock, steady_seconds
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import LabAgentError
from lab_agent.store.unit_of_work import Store

_NEEDED_FAILURES = 2
_NEEDED_DIFFERENCES = 3
"""How many looks in a row have to find another catalogue: it is taken over within seconds."""

Question = Callable[[], Awaitable[str | None]]
"""Gives what is wrong, None if nothing is. Raises `LabAgentError` if it cannot tell."""


def build_api_probes(
    health: ApiHealth,
    store: Store,
    clock: Clock,
    interval: timedelta,
    *,
    once: bool = False,
    steady: Callable[[], float] = steady_seconds,
) -> tuple[Probe, ...]:
    """Build what watches lab-api. `once`: what a single look finds is told at once."""

    def probe(condition: ConditionId, ask: Question, needed: int) -> Probe:
        return RepeatedProbe(condition, ask, clock, interval, 1 if once else needed, steady)

    return (
        probe(ConditionId.API_NOT_ANSWERING, lambda: _find_own_problem(health), _NEEDED_FAILURES),
        probe(ConditionId.API_NOT_READY, lambda: _find_unreadiness(health), _NEEDED_FAILURES),
        probe(ConditionId.API_NOT_PUBLIC, lambda: _find_public_problem(health), _NEEDED_FAILURES),
        probe(ConditionId.API_CATALOGUE_OUTDATED, lambda: _find_old_catalogue(health, store), _NEEDED_DIFFERENCES),
    )


@dataclass(slots=True)
class RepeatedProbe(Probe):
    """Tells a condition once so many looks in a row have found it; asks every `interval`, however often it is looked at.

    The interval is one of steady time (`steady`): a clock that is set back delays no look.
    """

    condition: ConditionId
    ask: Question
    clock: Clock
    interval: timedelta
    needed: int
    steady: Callable[[], float] = steady_seconds
    _asked_at: float | None = field(default=None, init=False)
    _since: datetime | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _detail: str = field(default="", init=False)

    @property
    @override
    def conditions(self) -> frozenset[ConditionId]:
        return frozenset({self.condition})

    @override
    async def look(self) -> Sequence[Finding]:
        """Raises `LabAgentError` while it has not been found often enough: an alert that is open stays so, and none opens."""
        steady = self.steady()
        if self._asked_at is None or steady - self._asked_at >= self.interval.total_seconds():
            self._asked_at = steady
            self._record(await self.ask(), self.clock.now())
        if not self._number:
            return ()
        if self._number < self.needed:
            raise LabAgentError(f"found {self._number} of {self.needed} times: {self._detail}")
        since = self._since if self.needed > 1 else None  # of a single look, an alert that is open already knows better
        return (Finding(condition=self.condition, detail=self._detail, since=since),)

    def _record(self, problem: str | None, now: datetime) -> None:
        if problem is None:
            self._number, self._since = 0, None
            return
        self._number, self._detail, self._since = self._number + 1, problem, self._since or now


async def _find_own_problem(health: ApiHealth) -> str | None:
    return (await health.ask_own()).problem


async def _find_unreadiness(health: ApiHealth) -> str | None:
    """Why it cannot work although it answers; None also where it does not answer, which is told as such."""
    return (await health.ask_own()).unready


async def _find_public_problem(health: ApiHealth) -> str | None:
    """Raises `LabAgentError` where it does not answer at its own address either: that is told, and is the cause."""
    if health.public is None:
        return None
    if (problem := (await health.ask_own()).problem) is not None:
        raise LabAgentError(f"lab-api does not answer at all: {problem}")
    return await health.find_public_problem()


async def _find_old_catalogue(health: ApiHealth, store: Store) -> str | None:
    """Which other version it serves than the one in force."""
    served = (await health.ask_own()).served
    in_force = await store.run_read_only(lambda uow: uow.catalogues.active())
    if served is None or in_force is None:
        raise LabAgentError("it is not known which catalogue lab-api serves")
    version, since = in_force
    if served == version:
        return None
    return f"it serves version {served}, and version {version} is in force since {since:%Y-%m-%d %H:%M} UTC"
