"""What a job's handler is.

A job has three parts. `load` reads what it needs, in the unit of work that claims it. `perform`, or `verify`, does what waits for
others, outside any transaction, and returns what it decided as frozen data. `complete` applies that in ONE unit of work (the
states of order and lines, further jobs, the job's own end), guarded by the fencing token. What goes wrong is raised as one of the
three failures; the runner decides by `queue.retry`, and the handler need not care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from lab_agent.queue.job_records import Job, JobKind
from lab_agent.store.unit_of_work import UnitOfWork

MAX_CONFLICT_RETRIES = 3
"""How often a conflict is answered by reading again before the job waits its turn."""

LoadedT = TypeVar("LoadedT")
ResultT = TypeVar("ResultT")


class Lease(Protocol):
    """A worker's hold on a job while it works on it."""

    @property
    def job(self) -> Job:
        """The job as it stands."""
        ...

    async def mark_started(self, also_write: Callable[[UnitOfWork], None] | None = None) -> None:
        """Commit that the job may have consequences outside from now on (and what `also_write` writes), with a full lease ahead.

        Raises `LeaseLostError`, and what `also_write` raises, which may check that there is still reason to begin: nothing is
        written then.
        """
        ...

    async def write(self, work: Callable[[UnitOfWork], None]) -> None:
        """Commit an intermediate fact (an id that the service assigned). Raises `LeaseLostError`, and nothing is written then."""
        ...

    async def confirm(self) -> None:
        """Make sure that the job is still ours, right before what must not come after a later owner's.

        The store is asked where the time of the lease is over, as for a process that stood still. Raises `LeaseLostError`.
        """
        ...


class JobHandler(Protocol[LoadedT, ResultT]):
    """Does the jobs of some kinds.

    `LoadedT` is what it reads of the store first, `ResultT` what it decides: frozen dataclasses of its own, or unions of them.
    """

    kinds: ClassVar[frozenset[JobKind]]

    def load(self, uow: UnitOfWork, job: Job) -> LoadedT:
        """Read what the job needs. It writes nothing; what it raises ends the job as if `perform` had raised it.

        It locks nothing, and the claim is not committed yet: others may change what it reads, and not see that the job is taken.
        What an effect depends on is read again under the order's lock, as a rule by `mark_started`.
        """
        ...

    async def perform(self, lease: Lease, loaded: LoadedT) -> ResultT:
        """Do a due job."""
        ...

    async def verify(self, lease: Lease, loaded: LoadedT) -> ResultT:
        """Settle a job of unknown outcome (law 3): find out whether it happened before it is done again."""
        ...

    def complete(self, uow: UnitOfWork, job: Job, result: ResultT) -> Job:
        """Write what follows and return the job as it ends. Neither saves the job nor commits: the lease does both."""
        ...


AnyJobHandler = JobHandler[Any, Any]
"""A handler whose data only itself understands."""
