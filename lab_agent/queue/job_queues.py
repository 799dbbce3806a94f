"""Queues of job kinds, each with slots of its own, so that one slow remote system delays only its own queue (law 9)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lab_agent.queue.claiming import ClaimedJob
from lab_agent.queue.job_records import JobKind, JobLimits

JOB_QUEUES: dict[str, frozenset[JobKind]] = {
    "orders": frozenset({JobKind.FETCH_ORDER}),
    "submission": frozenset({JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS}),
    "matching": frozenset({JobKind.MATCH_REPORT}),
    "delivery": frozenset({JobKind.DELIVER_REPORT}),
    "tasks": frozenset({JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}),
}

OUTBOUND_QUEUES = frozenset({"submission", "delivery", "tasks"})
"""Queues with consequences outside; in observe mode they do not run."""


def list_queues(*, observe: bool) -> dict[str, frozenset[JobKind]]:
    """The queues of a worker; without the outbound ones where it only observes."""
    return {name: kinds for name, kinds in JOB_QUEUES.items() if not (observe and name in OUTBOUND_QUEUES)}


@dataclass(slots=True)
class Offer:
    """Free slots that one claim may fill; nobody else fills them meanwhile.

    Whoever claims sets `claimed` once it is committed; None means that nothing was, so that everything is as before.
    """

    limits: JobLimits = field(default_factory=dict)
    backlog: frozenset[frozenset[JobKind]] = frozenset()
    """Queues that may have more due jobs than they had slots."""
    claimed: tuple[ClaimedJob, ...] | None = None

    def limits_for(self, made_due: Collection[JobKind]) -> JobLimits:
        """How many jobs to claim where these kinds were made due: nothing of queues that have nothing to do."""
        return {
            kinds: limit
            for kinds, limit in self.limits.items()
            if limit and (kinds in self.backlog or not kinds.isdisjoint(made_due))
        }


@dataclass(slots=True)
class _Queue:
    kinds: frozenset[JobKind]
    free: int
    may_have_more: bool = True
    is_held: bool = False

    @property
    def is_open(self) -> bool:
        return self.free > 0 and not self.is_held


class JobSlots:
    """How many slots of each queue are free, and which queues may have something due. Used in the event loop alone."""

    def __init__(self, queues: Mapping[str, frozenset[JobKind]], concurrency: int) -> None:
        self._queues = [_Queue(kinds, concurrency) for kinds in queues.values()]

    def hold(self, kinds: Collection[JobKind]) -> None:
        """Offer no slots of queues with these kinds, until it is called with others; what is running goes on."""
        for queue in self._queues:
            queue.is_held = not queue.kinds.isdisjoint(kinds)
            queue.may_have_more = True

    def note_due(self, kinds: Collection[JobKind]) -> None:
        """Note that something of these kinds is due."""
        for queue in self._queues:
            queue.may_have_more |= not queue.kinds.isdisjoint(kinds)

    def idle_kinds(self) -> frozenset[JobKind]:
        """Kinds of queues that have free slots, and nothing due as far as is known."""
        return frozenset[JobKind]().union(*(queue.kinds for queue in self._queues if queue.is_open and not queue.may_have_more))

    def free(self, kind: JobKind) -> None:
        """Give back the slot of a job of this kind."""
        self._queue_of(kind).free += 1

    @contextmanager
    def offer_backlog(self) -> Iterator[Offer]:
        """Offer the free slots of the queues that may have something due."""
        limits = {queue.kinds: queue.free for queue in self._queues if queue.is_open and queue.may_have_more}
        with self._offer(limits) as offer:
            yield offer

    @contextmanager
    def offer_all(self, ending: JobKind) -> Iterator[Offer]:
        """Offer all free slots, and the one of a job of the kind `ending`. It is given up if something is claimed."""
        limits = {queue.kinds: 0 if queue.is_held else max(queue.free, 0) for queue in self._queues}
        own = self._queue_of(ending)
        limits[own.kinds] += not own.is_held
        own.free += 1
        taken = False
        try:
            with self._offer(limits) as offer:
                yield offer
            taken = offer.claimed is not None
        finally:
            if not taken:
                own.free -= 1

    @contextmanager
    def _offer(self, limits: JobLimits) -> Iterator[Offer]:
        queues = [queue for queue in self._queues if queue.kinds in limits]
        offer = Offer(limits, frozenset(queue.kinds for queue in queues if queue.may_have_more))
        for queue in queues:
            queue.free -= limits[queue.kinds]
            queue.may_have_more = False
        try:
            yield offer
        finally:
            for queue in queues:
                self._settle(queue, limits[queue.kinds], offer)

    def _settle(self, queue: _Queue, limit: int, offer: Offer) -> None:
        taken = sum(each.job.kind in queue.kinds for each in offer.claimed or ())
        queue.free += limit - taken
        queue.may_have_more |= 0 < limit == taken or (queue.kinds in offer.backlog and (offer.claimed is None or not limit))

    def _queue_of(self, kind: JobKind) -> _Queue:
        return next(queue for queue in self._queues if kind in queue.kinds)
