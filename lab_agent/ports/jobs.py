"""What an effect's handler is.

A handler does the waiting part outside any transaction and returns a *conclusion*: a function that writes all that follows
(the states of order and lines, further effects, the effect's own end) in ONE unit of work, fenced by the claim. What goes wrong
is raised as one of the three failures; the engine then decides by `domain.retry` and the handler need not care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from lab_agent.domain.records import Job, JobKind
from lab_agent.ports.repositories import UnitOfWork

Completion = Callable[[UnitOfWork, Job], Job]
"""Write what follows and give the effect as it ends. Neither saves the effect nor commits: the engine does, with the fence."""

MAX_CONFLICT_RETRIES = 3
"""How often a conflict is answered by reading again before the effect waits its turn."""


class Lease(Protocol):
    """The hold that a worker has on an effect while it works on it."""

    @property
    def job(self) -> Job:
        """The effect as it stands."""
        ...

    async def mark_started(self, also_write: Callable[[UnitOfWork], None] | None = None) -> None:
        """Commit that the effect may be felt outside from now on (and `also` what must be known by then), with a full
        lease ahead. Raises `LeaseLostError`.
        """
        ...

    async def write(self, work: Callable[[UnitOfWork], None]) -> None:
        """Commit an intermediate fact (an id that the service gave). Raises `LeaseLostError` and writes nothing if fenced out."""
        ...


class JobHandler(Protocol):
    """Does the effects of some kinds."""

    kinds: ClassVar[frozenset[JobKind]]

    async def perform(self, lease: Lease) -> Completion:
        """Do a due effect."""
        ...

    async def verify(self, lease: Lease) -> Completion:
        """Settle an effect of unknown outcome (law 3): find out whether it happened before it is done again."""
        ...


def completion(reason: str | None = None) -> Completion:
    """Conclude that nothing is left to do."""
    return lambda _, job: job.complete(job.changed_at, reason)
