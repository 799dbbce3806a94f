"""Who may do which effect: leases with an owner, a heartbeat and a fencing number (law 8).

A lane is done one effect after the other. Claimable is the first open effect of a lane, while no other effect of that lane is
with an owner. On SQLite every unit of work has the write lock, so that a look is enough. On PostgreSQL candidates are locked
with SKIP LOCKED, and then their lanes: a statement sees what was committed before it began, so the lane is looked at once more
after its lock is ours, and no two claimers ever hold effects of one lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, func, select, update

from lab_agent.domain.journal import Effect, EffectKind
from lab_agent.domain.lifecycle import LANE_BLOCKING
from lab_agent.errors import LeaseLostError
from lab_agent.store.rows import among, to_record, to_values
from lab_agent.store.states import CLAIMABLE, IN_FLIGHT
from lab_agent.store.tables import effects

_LANES = 0x1AB
"""Our part of PostgreSQL's advisory locks."""


def claim(
    connection: Connection, kinds: Collection[EffectKind], *, owner: str, now: datetime, lease: timedelta, limit: int
) -> tuple[Effect, ...]:
    """Take up to `limit` due effects for `owner`, after taking away those whose lease has lapsed."""
    lapse(connection, now)
    if limit < 1 or not kinds:
        return ()
    found = _read(connection, _claimable(kinds, now).limit(limit).with_for_update(skip_locked=True, of=effects))
    if connection.dialect.name == "postgresql":
        found = _with_their_lanes(connection, found, kinds, now)
    claimed = tuple(effect.claimed(owner, now, lease) for effect in found)
    for before, after in zip(found, claimed, strict=True):
        write(connection, after, fence=before.fence)
    return claimed


def lapse(connection: Connection, now: datetime) -> int:
    """Take effects away from owners that were silent for too long; their number."""
    silent = select(effects).where(among(effects.c.state, IN_FLIGHT), effects.c.lease_until <= now).order_by(effects.c.id)
    found = _read(connection, silent.with_for_update(skip_locked=True))
    for effect in found:
        write(connection, effect.lapsed(now), fence=effect.fence)
    return len(found)


def prolong(connection: Connection, effect: Effect, until: datetime) -> None:
    """Move the end of a lease. Raises `LeaseLostError` if the fence has moved on, or the claim was given back."""
    ours = (effects.c.id == effect.id) & (effects.c.fence == effect.fence) & effects.c.lease_until.is_not(None)
    if not connection.execute(update(effects).where(ours).values(lease_until=until)).rowcount:
        raise LeaseLostError()


def write(connection: Connection, effect: Effect, *, fence: int) -> None:
    """Write an effect whose row has this fence. Raises `LeaseLostError` otherwise."""
    row = (effects.c.id == effect.id) & (effects.c.fence == fence)
    if not connection.execute(update(effects).where(row).values(**to_values(effect))).rowcount:
        raise LeaseLostError()


def hold_lane(connection: Connection, lane: str) -> None:
    """Wait for a lane and hold it until the transaction ends, so that effects of a lane are numbered as they are committed."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LANES, func.hashtext(lane))))


def _claimable(kinds: Collection[EffectKind], now: datetime) -> Select[Any]:
    other = effects.alias("other")
    kind = func.coalesce(effects.c.kind, effects.c.kind)  # SQLite would leave the index of what is due for one that has kinds
    in_the_way = (
        select(other.c.id)
        .where(other.c.lane == effects.c.lane, other.c.id != effects.c.id, among(other.c.state, LANE_BLOCKING))
        .where((other.c.id < effects.c.id) | (other.c.lease_until > now))
    )
    return (
        select(effects)
        .where(among(effects.c.state, CLAIMABLE), effects.c.due_at <= now, kind.in_(sorted(kinds)))
        .where(effects.c.lease_until.is_(None) | (effects.c.lease_until <= now), ~in_the_way.exists())
        .order_by(effects.c.due_at, effects.c.id)
    )


def _with_their_lanes(
    connection: Connection, found: tuple[Effect, ...], kinds: Collection[EffectKind], now: datetime
) -> tuple[Effect, ...]:
    ours = {lane for lane in sorted({effect.lane for effect in found}) if _try_lane(connection, lane)}
    numbers = [effect.id for effect in found if effect.lane in ours]
    return _read(connection, _claimable(kinds, now).where(effects.c.id.in_(numbers))) if numbers else ()


def _try_lane(connection: Connection, lane: str) -> bool:
    return bool(connection.scalar(select(func.pg_try_advisory_xact_lock(_LANES, func.hashtext(lane)))))


def _read(connection: Connection, statement: Select[Any]) -> tuple[Effect, ...]:
    rows: Iterable[Any] = connection.execute(statement).mappings()
    return tuple(to_record(Effect, row) for row in rows)
