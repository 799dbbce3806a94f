"""The statements of the job queue, with bound parameters. Those for a set of queues are made once for each set that is asked.

Their times come as `at`; how many jobs a queue may have, as `limit_0` and so on, in the order of the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Integer,
    Select,
    Text,
    Tuple,
    bindparam,
    case,
    func,
    literal_column,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import AT_LABORATORY_SYSTEM, GIVING_WAY, PASSED_IN_REVIEW, Job, JobKind, NewJob
from lab_agent.queue.pauses import PAUSE_KEY_PREFIX
from lab_agent.shared.state_machines import (
    BLOCKING_STATES,
    CLAIMABLE_STATES,
    IN_FLIGHT_STATES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    JobState,
)
from lab_agent.store.column_types import UtcDateTime
from lab_agent.store.row_mapping import RecordMapping, in_states, states_condition
from lab_agent.store.session import Query, Write
from lab_agent.store.tables import jobs, key_values

_ADVISORY_LOCK_NAMESPACE = 0x1AB
"""Our part of PostgreSQL's advisory locks."""
_QUEUE_SETS = 64
"""How many sets of queues have their statements kept: a worker's queues are few."""
_NOW = bindparam("at", type_=UtcDateTime)
EXPIRED = "expired lease"
"""What `select_pending` gives beside kinds."""

JOBS = RecordMapping(Job, jobs)
NEW_JOBS = RecordMapping(NewJob, jobs)

# --- one job, or jobs by their id

_OURS = (jobs.c.id == bindparam("of")) & (jobs.c.fencing_token == bindparam("token"))
_FIRST_WAITING = literal_column(  # as text, since SQLAlchemy leaves out the names of tables in RETURNING
    "(SELECT waiting.kind FROM jobs AS waiting WHERE waiting.ordering_key = jobs.ordering_key AND waiting.id <> jobs.id"  # noqa: S608 - made of constants
    f" AND waiting.due_at <= jobs.changed_at AND waiting.{states_condition(CLAIMABLE_STATES)}"
    f" AND waiting.{states_condition(BLOCKING_STATES)} ORDER BY coalesce(waiting.in_place_of, waiting.id), waiting.id LIMIT 1)",
    jobs.c.kind.type,
)
INSERT = Write.insert(jobs, lambda insert: insert.on_conflict_do_nothing().returning(jobs.c.dedup_key))
SAVE = Write.of(jobs, update(jobs).where(_OURS))
RELEASE = Write.of(jobs, update(jobs).where(_OURS).returning(_FIRST_WAITING))
"""Like `SAVE`; gives a row if it is ours, with the kind of the due job of its ordering key that was waiting for it, or NULL."""
RENEW = Write.of(
    jobs,
    update(jobs)
    .where(tuple_(jobs.c.id, jobs.c.fencing_token).in_(bindparam("tokens", expanding=True)), jobs.c.lease_until.is_not(None))
    .values(lease_until=bindparam("until", type_=UtcDateTime))
    .returning(jobs.c.id, jobs.c.fencing_token),
)

# --- jobs of an order, jobs of a state

_SELECT = select(*JOBS.columns).order_by(jobs.c.id)
ONE = Query(_SELECT.where(jobs.c.id == bindparam("of")))
OF_ORDER = Query(_SELECT.where(jobs.c.order_key == bindparam("of")))
OPEN_OF_ORDER = Query(_SELECT.where(jobs.c.order_key == bindparam("of"), in_states(jobs.c.state, OPEN_JOBS)))


def _equals_if_given(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    wanted: BindParameter[Any] = bindparam(name, type_=column.type)  # PostgreSQL has to know the type of NULL, too
    return wanted.is_(None) | (column == wanted)


_needing_operator = (  # in the order of their index
    _SELECT.order_by(None)
    .where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR))
    .where(_equals_if_given(jobs.c.kind, "of_kind"), _equals_if_given(jobs.c.state, "of_state"))
    .order_by(jobs.c.first_due_at, jobs.c.id)
    .limit(bindparam("at_most"))
)
NEEDING_OPERATOR = Query(_needing_operator)
_AFTER_DUE: BindParameter[datetime] = bindparam("after_due", type_=jobs.c.first_due_at.type)
NEXT_NEEDING_OPERATOR = Query(
    _needing_operator.where(
        jobs.c.first_due_at >= _AFTER_DUE, (jobs.c.first_due_at > _AFTER_DUE) | (jobs.c.id > bindparam("after"))
    )
)
EXPIRED_LEASES = Query(  # sorted by us: SQLite would walk over all jobs for their order
    _SELECT.order_by(None)
    .where(in_states(jobs.c.state, IN_FLIGHT_STATES), jobs.c.lease_until <= _NOW)
    .with_for_update(skip_locked=True)
)
_failing = (
    select(
        jobs.c.failure_cause.label("cause"),
        jobs.c.kind,
        func.count().label("count"),
        func.min(jobs.c.failing_since, type_=UtcDateTime).label("since"),
        func.min(jobs.c.id).label("first"),
    )
    .where(
        jobs.c.failing_since.is_not(None),
        jobs.c.failing_since <= bindparam("since"),
        ~in_states(jobs.c.state, JOBS_NEEDING_OPERATOR),
    )
    .group_by(jobs.c.failure_cause, jobs.c.kind)
    .order_by(jobs.c.failure_cause, jobs.c.kind)
)
FAILING = Query(_failing)
FAILING_OF_KIND = Query(_failing.where(jobs.c.kind == bindparam("of")))
_is_set_aside = in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)
_ONE, _ZERO = literal_column("1", Integer), literal_column("0", Integer)
FAILURE_GROUPS = Query(
    select(
        jobs.c.failure_cause.label("cause"),
        jobs.c.system,
        jobs.c.kind,
        func.count().label("count"),
        func.sum(case((_is_set_aside, _ONE), else_=_ZERO)).label("set_aside"),
        func.sum(case((in_states(jobs.c.state, (JobState.NEEDS_REVIEW,)), _ONE), else_=_ZERO)).label("in_review"),
        func.min(jobs.c.first_due_at, type_=UtcDateTime).label("since"),
        func.min(case((_is_set_aside, None), else_=jobs.c.failing_since), type_=UtcDateTime).label("failing_since"),
        func.max(case((_is_set_aside, _ZERO), else_=jobs.c.failures)).label("failures"),
    )
    .where(jobs.c.failing_since.is_not(None))
    .group_by(jobs.c.failure_cause, jobs.c.system, jobs.c.kind)
    .order_by(jobs.c.failure_cause, jobs.c.system, jobs.c.kind)
)
OF_CAUSE = Query(
    _SELECT.where(jobs.c.failing_since.is_not(None), jobs.c.failure_cause == bindparam("of"), jobs.c.id > bindparam("after"))
    .where(_equals_if_given(jobs.c.system, "at_system"), _equals_if_given(jobs.c.kind, "of_kind"))
    .limit(bindparam("at_most"))
)
_later = update(jobs).values(due_at=_NOW).where(in_states(jobs.c.state, CLAIMABLE_STATES), jobs.c.due_at > _NOW)
_later_of_kind = _later.where(jobs.c.kind == bindparam("of"))
_may_be_tried = jobs.c.failure_cause.is_(None) | (jobs.c.failure_cause != FailureCause.SERVICE_ASKS_TO_WAIT)
MAKE_DUE = Write.of(jobs, _later_of_kind)
MAKE_GIVING_WAY_DUE = Write.of(jobs, _later_of_kind.where(jobs.c.gives_way))
MAKE_FAILING_DUE = Write.of(jobs, _later_of_kind.where(jobs.c.failing_since.is_not(None), _may_be_tried))
_after = case((jobs.c.gives_way, bindparam("giving_way_after", type_=UtcDateTime)), else_=bindparam("after", type_=UtcDateTime))
BRING_FORWARD = Write.of(jobs, _later.where(jobs.c.due_at > _after))
SHORTEN_LEASES = Write.of(
    jobs,
    update(jobs)
    .values(lease_until=bindparam("until", type_=UtcDateTime))
    .where(jobs.c.lease_until > bindparam("until", type_=UtcDateTime)),
)

# --- what can be claimed

_hashes = (
    select(func.hashtext(func.unnest(bindparam("keys", type_=postgresql.ARRAY(Text)))).label("hash")).distinct().order_by("hash")
).subquery()
LOCK_KEYS = Query(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, _hashes.c.hash)))
"""Lock ordering keys until the transaction ends, in the order of their hashes. For PostgreSQL."""


def _turn(table: FromClause) -> Tuple:
    """Give what the jobs of an ordering key are sorted by."""
    return tuple_(func.coalesce(table.c.in_place_of, table.c.id), table.c.id)


def _is_claimable() -> ColumnElement[bool]:
    """Say that a job is due, that it has no owner, and that it waits for no other job of its ordering key."""
    other = jobs.alias("other")
    blocked_by = (
        select(other.c.id)
        .where(other.c.ordering_key == jobs.c.ordering_key, other.c.id != jobs.c.id, in_states(other.c.state, BLOCKING_STATES))
        .where((_turn(other) < _turn(jobs)) | (other.c.lease_until > _NOW))
        .where(~in_states(other.c.state, (JobState.NEEDS_REVIEW,)) | ~in_states(other.c.kind, PASSED_IN_REVIEW))
    )
    free = jobs.c.lease_until.is_(None) | (jobs.c.lease_until <= _NOW)
    return in_states(jobs.c.state, CLAIMABLE_STATES) & (jobs.c.due_at <= _NOW) & free & ~blocked_by.exists()


_PAUSE_OF_SYSTEM = literal_column(f"'{PAUSE_KEY_PREFIX}'", Text) + jobs.c.system
_IS_PAUSE = (key_values.c.key == _PAUSE_OF_SYSTEM) & (key_values.c.value != literal_column("''"))
_PAUSED = select(key_values.c.key).where(_IS_PAUSE).exists()
"""Whether the laboratory system of a job is paused."""


def _claimable_of(kind: JobKind) -> tuple[Select[Any], ...]:
    """Select what can be claimed of a kind; what gives way by itself, so that the others are found without passing over it."""
    claimable = select(jobs.c.id, jobs.c.gives_way, jobs.c.due_at, jobs.c.ordering_key)
    found = claimable.where(jobs.c.kind == literal_column(f"'{kind.value}'"), _is_claimable())
    found = found.where(~_PAUSED) if kind in AT_LABORATORY_SYSTEM else found
    turns = ("false", "true") if kind in GIVING_WAY else ("false",)
    return tuple(found.where(jobs.c.gives_way == literal_column(each, Boolean)) for each in turns)


def limit_name(place: int) -> str:
    """Name of the parameter for the limit of a queue."""
    return f"limit_{place}"


def _candidates(place: int, kinds: frozenset[JobKind]) -> Select[Any]:
    """Select what one queue can claim, longest due first, and what gives way last.

    Each kind is read by itself from the index of its due times, and nothing behind the limit is: a backlog costs nothing.
    """
    limit: BindParameter[int] = bindparam(limit_name(place))
    each_kind = (each for kind in sorted(kinds) for each in _claimable_of(kind))
    first = (each.order_by(jobs.c.due_at, jobs.c.id).limit(limit) for each in each_kind)
    locked = [each.with_for_update(skip_locked=True, of=jobs).subquery() for each in first]
    if len(locked) == 1:
        return select(locked[0].c.id, locked[0].c.ordering_key)
    found = union_all(*(select(each) for each in locked)).subquery()
    return select(found.c.id, found.c.ordering_key).order_by(found.c.gives_way, found.c.due_at, found.c.id).limit(limit)


def select_claimable(queues: Sequence[frozenset[JobKind]]) -> CompoundSelect[Any]:
    """Select id and ordering key of what these queues can claim, each up to its limit."""
    return union_all(*(select(_candidates(place, kinds).subquery()) for place, kinds in enumerate(queues)))


@lru_cache(_QUEUE_SETS)
def lock_claimable(queues: tuple[frozenset[JobKind], ...]) -> Query:
    """Lock candidates, and try to lock their ordering keys until the transaction ends: ids, and whether the key is ours."""
    found = select_claimable(queues).subquery()
    try_lock = func.pg_try_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, func.hashtext(found.c.ordering_key))
    return Query(select(found.c.id, try_lock.label("is_locked")))


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
    .returning(*JOBS.columns)
)
CLAIM_LOCKED = Write.of(jobs, _MARK.where(jobs.c.id.in_(bindparam("ids", expanding=True)), _is_claimable()))


@lru_cache(_QUEUE_SETS)
def claim(queues: tuple[frozenset[JobKind], ...]) -> Write:
    """Find what these queues can claim and mark it. For SQLite."""
    found = select_claimable(queues).subquery()
    return Write.of(jobs, _MARK.where(jobs.c.id.in_(select(found.c.id))))


@lru_cache(_QUEUE_SETS)
def select_pending(kinds: frozenset[JobKind]) -> Query:
    """Select which of these kinds have a job that can be claimed, and `EXPIRED` where a lease has."""
    expired = in_states(jobs.c.state, IN_FLIGHT_STATES) & (jobs.c.lease_until <= _NOW)
    looks = [
        *((kind.value, each) for kind in sorted(kinds) for each in _claimable_of(kind)),
        (EXPIRED, select(jobs.c.id).where(expired)),
    ]
    return Query(union_all(*(select(literal_column(f"'{name}'")).where(look.exists()) for name, look in looks)))
