"""The outbox (`ports.store.Effects`)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, select, update

from lab_agent.domain.ids import EffectId, OrderKey
from lab_agent.domain.journal import Effect, EffectKind, NewEffect
from lab_agent.domain.lifecycle import ASKING_EFFECTS, OPEN_EFFECTS, EffectState
from lab_agent.store import claims
from lab_agent.store.rows import among, insert_new, to_record, to_values
from lab_agent.store.states import CLAIMABLE
from lab_agent.store.tables import effects


class SqlEffects:
    """The outbox, in the table `effects`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, effect: NewEffect) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
        claims.hold_lane(self._connection, effect.lane)
        born = min(effect.due_at, datetime.now(UTC))
        start = {"state": EffectState.DUE, "begun": False, "attempts": 0, "fence": 0, "created_at": born, "changed_at": born}
        return insert_new(self._connection, effects, {**to_values(effect), **start})

    def claim(
        self, kinds: Collection[EffectKind], *, owner: str, now: datetime, lease: timedelta, limit: int
    ) -> tuple[Effect, ...]:
        """Take up to `limit` effects that are due, the first open one of each lane, longest due first."""
        return claims.claim(self._connection, kinds, owner=owner, now=now, lease=lease, limit=limit)

    def prolong(self, effect: Effect, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        claims.prolong(self._connection, effect, now + lease)

    def save(self, effect: Effect) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        claims.write(self._connection, effect, fence=effect.fence)

    def get(self, effect: EffectId) -> Effect | None:
        """One effect."""
        found = self._read(select(effects).where(effects.c.id == effect))
        return found[0] if found else None

    def of_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Effect, ...]:
        """The effects of an order, oldest first."""
        found = select(effects).where(effects.c.order_key == order).order_by(effects.c.id)
        return self._read(found.where(among(effects.c.state, OPEN_EFFECTS)) if open_only else found)

    def asking(self) -> tuple[Effect, ...]:
        """Effects that wait for a person (parked, or to be reviewed), oldest first."""
        return self._read(select(effects).where(among(effects.c.state, ASKING_EFFECTS)).order_by(effects.c.id))

    def wake(self, kind: EffectKind, *, now: datetime) -> int:
        """Make waiting effects of a kind (due, or to be looked at, in the future) due now; their number."""
        waiting = among(effects.c.state, CLAIMABLE) & (effects.c.due_at > now) & (effects.c.kind == kind)
        return self._connection.execute(update(effects).where(waiting).values(due_at=now)).rowcount

    def _read(self, statement: Select[Any]) -> tuple[Effect, ...]:
        return tuple(to_record(Effect, row) for row in self._connection.execute(statement).mappings())
