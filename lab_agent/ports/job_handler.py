"""What a job's handler is.

A handler does the waiting part outside any transaction and returns what it decided as frozen data; `complete` then applies that
in ONE unit of work (the states of order and lines, further jobs, the job's own end), guarded by the fencing token. What goes
wrong is raised as one of the three failures; the runner decides by `domain.retry`, and the handler need not care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from lab_agent.domain.records import Job, JobKind
from lab_agent.ports.repositories import UnitOfWork

MAX_CONFLICT_RETRIES = 3
"""How often a conflict is answered by reading again before the job waits its turn."""

ResultT = TypeVar("ResultT")


class Lease(Protocol):
    """A worker's hold on a job while it works on it."""

    @property
    def job(self) -> Job:
        """The job as it stands."""
        ...

    async def mark_started(self, also_write: Callable[[UnitOfWork], None] | None = None) -> None:
        """Commit that the job may have consequences outside from now on (and what `also_write` writes), with a full lease ahead.

        Raises `LeaseLostError`.
        """
        ...

    async def write(self, work: Callable[[UnitOfWork], None]) -> None:
        """Commit an intermediate fact (an id that the service assigned). Raises `LeaseLostError`, and nothing is written then."""
        ...


class JobHandler(Protocol[ResultT]):
    """Does the jobs of some kinds. `ResultT` is what it decides: a frozen dataclass of its own, or a union of them."""

    kinds: ClassVar[frozenset[JobKind]]

    async def perform(self, lease: Lease) -> ResultT:
        """Do a due job."""
        ...

    async def verify(self, lease: Lease) -> ResultT:
        """Settle a job of unknown outcome (law 3): find out whether it happened before it is done again."""
        ...

    def complete(self, uow: UnitOfWork, job: Job, result: ResultT) -> Job:
        """Write what follows and return the job as it ends. Neither saves the job nor commits: the lease does both."""
        ...


AnyJobHandler = JobHandler[Any]
"""A handler whose result only itself understands."""
