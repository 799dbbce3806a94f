"""The statements of the job queue, with bound parameters. Those for a set of queues are made once for each set that is asked.

Their times come as `at`; how many jobs a queue may have, as `limit_0` and so on, in the order of the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Executable,
    Select,
    Text,
    bindparam,
    case,
    func,
    literal_column,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from lab_agent.domain.records import PASSED_IN_REVIEW, JobKind
from lab_agent.domain.state_machines import BLOCKING_STATES, CLAIMABLE_STATES, IN_FLIGHT_STATES, JobState
from lab_agent.store.column_types import UtcDateTime
from lab_agent.store.row_mapping import in_states, states_condition
from lab_agent.store.tables import jobs

_ADVISORY_LOCK_NAMESPACE = 0x1AB
"""Our part of PostgreSQL's advisory locks."""
_QUEUE_SETS = 64
"""How many sets of queues have their statements kept: a worker's queues are few."""
_NOW = bindparam("at", type_=UtcDateTime)
EXPIRED = "expired lease"
"""What `select_pending` gives beside kinds."""

# --- one job, or jobs by their id

_OURS = (jobs.c.id == bindparam("of")) & (jobs.c.fencing_token == bindparam("token"))
_FIRST_WAITING = literal_column(  # as text, since SQLAlchemy leaves out the names of tables in RETURNING
    "(SELECT waiting.kind FROM jobs AS waiting WHERE waiting.ordering_key = jobs.ordering_key AND waiting.id <> jobs.id"  # noqa: S608 - made of constants
    f" AND waiting.due_at <= jobs.changed_at AND waiting.{states_condition(CLAIMABLE_STATES)}"
    f" AND waiting.{states_condition(BLOCKING_STATES)} ORDER BY waiting.id LIMIT 1)",
    jobs.c.kind.type,
)
INSERT = {
    "sqlite": sqlite.insert(jobs).on_conflict_do_nothing().returning(jobs.c.dedup_key),
    "postgresql": postgresql.insert(jobs).on_conflict_do_nothing().returning(jobs.c.dedup_key),
}
SAVE = update(jobs).where(_OURS)
RELEASE = SAVE.returning(_FIRST_WAITING)
"""Like `SAVE`; gives a row if it is ours, with the kind of the due job of its ordering key that was waiting for it, or NULL."""
SELECT_EXPIRED = (
    select(jobs)
    .where(in_states(jobs.c.state, IN_FLIGHT_STATES), jobs.c.lease_until <= _NOW)
    .order_by(jobs.c.id)
    .with_for_update(skip_locked=True)
)
RENEW = (
    update(jobs)
    .where(tuple_(jobs.c.id, jobs.c.fencing_token).in_(bindparam("tokens", expanding=True)), jobs.c.lease_until.is_not(None))
    .values(lease_until=bindparam("until", type_=UtcDateTime))
    .returning(jobs.c.id)
)

_hashes = (
    select(func.hashtext(func.unnest(bindparam("keys", type_=postgresql.ARRAY(Text)))).label("hash")).distinct().order_by("hash")
).subquery()
LOCK_KEYS = select(func.pg_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, _hashes.c.hash))
"""Lock ordering keys until the transaction ends, in the order of their hashes. For PostgreSQL."""

# --- what can be claimed


def _is_claimable() -> ColumnElement[bool]:
    """Say that a job is due, that it has no owner, and that it waits for no other job of its ordering key."""
    other = jobs.alias("other")
    blocked_by = (
        select(other.c.id)
        .where(other.c.ordering_key == jobs.c.ordering_key, other.c.id != jobs.c.id, in_states(other.c.state, BLOCKING_STATES))
        .where((other.c.id < jobs.c.id) | (other.c.lease_until > _NOW))
        .where(~in_states(other.c.state, (JobState.NEEDS_REVIEW,)) | ~in_states(other.c.kind, PASSED_IN_REVIEW))
    )
    free = jobs.c.lease_until.is_(None) | (jobs.c.lease_until <= _NOW)
    return in_states(jobs.c.state, CLAIMABLE_STATES) & (jobs.c.due_at <= _NOW) & free & ~blocked_by.exists()


def _claimable_of(kind: JobKind) -> Select[Any]:
    claimable = select(jobs.c.id, jobs.c.due_at, jobs.c.ordering_key)
    return claimable.where(jobs.c.kind == literal_column(f"'{kind.value}'"), _is_claimable())


def limit_name(place: int) -> str:
    """Name of the parameter for the limit of a queue."""
    return f"limit_{place}"


def _candidates(place: int, kinds: frozenset[JobKind]) -> Select[Any]:
    """Select what one queue can claim, longest due first.

    Each kind is read by itself from the index of its due times, and nothing behind the limit is: a backlog costs nothing.
    """
    limit = bindparam(limit_name(place))
    each_kind = (_claimable_of(kind).order_by(jobs.c.due_at, jobs.c.id).limit(limit) for kind in sorted(kinds))
    locked = [each.with_for_update(skip_locked=True, of=jobs).subquery() for each in each_kind]
    if len(locked) == 1:
        return select(locked[0].c.id, locked[0].c.ordering_key)
    found = union_all(*(select(each) for each in locked)).subquery()
    return select(found.c.id, found.c.ordering_key).order_by(found.c.due_at, found.c.id).limit(limit)


def select_claimable(queues: Sequence[frozenset[JobKind]]) -> CompoundSelect[Any]:
    """Select id and ordering key of what these queues can claim, each up to its limit."""
    return union_all(*(select(_candidates(place, kinds).subquery()) for place, kinds in enumerate(queues)))


@lru_cache(_QUEUE_SETS)
def lock_claimable(queues: tuple[frozenset[JobKind], ...]) -> Executable:
    """Lock candidates, and try to lock their ordering keys until the transaction ends: ids, and whether the key is ours."""
    found = select_claimable(queues).subquery()
    return select(found.c.id, func.pg_try_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, func.hashtext(found.c.ordering_key)))


_MARK = (
    update(jobs)  # as `Job.claim` does
    .values(
        state=case((jobs.c.state == JobState.DUE, JobState.IN_FLIGHT), else_=jobs.c.state),
        owner=bindparam("by"),
        fencing_token=jobs.c.fencing_token + 1,
        attempts=jobs.c.attempts + 1,
        lease_until=bindparam("until", type_=UtcDateTime),
        changed_at=_NOW,
    )
    .returning(*jobs.columns)
)
CLAIM_LOCKED = _MARK.where(jobs.c.id.in_(bindparam("ids", expanding=True)), _is_claimable())


@lru_cache(_QUEUE_SETS)
def claim(queues: tuple[frozenset[JobKind], ...]) -> Executable:
    """Find what these queues can claim and mark it."""
    found = select_claimable(queues).subquery()
    return _MARK.where(jobs.c.id.in_(select(found.c.id)))


@lru_cache(_QUEUE_SETS)
def select_pending(kinds: frozenset[JobKind]) -> Executable:
    """Select which of these kinds have a job that can be claimed, and `EXPIRED` where a lease has."""
    expired = in_states(jobs.c.state, IN_FLIGHT_STATES) & (jobs.c.lease_until <= _NOW)
    looks = [
        *((kind.value, _claimable_of(kind)) for kind in sorted(kinds)),
        (EXPIRED, select(jobs.c.id).where(expired)),
    ]
    return union_all(*(select(literal_column(f"'{name}'")).where(look.exists()) for name, look in looks))
