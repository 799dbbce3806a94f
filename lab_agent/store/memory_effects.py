"""The outbox, in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lab_agent import exact_json
from lab_agent.domain.ids import EffectId, OrderKey
from lab_agent.domain.journal import Effect, EffectKind, NewEffect
from lab_agent.domain.lifecycle import ASKING_EFFECTS, LANE_BLOCKING, OPEN_EFFECTS, EffectState
from lab_agent.errors import LeaseLostError
from lab_agent.store.memory_shelf import Shelf
from lab_agent.store.states import CLAIMABLE


class MemoryEffects:
    """The outbox."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def add(self, effect: NewEffect) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
        payload = exact_json.loads(exact_json.dumps(effect.payload))
        if effect.once in self._shelf.once:
            return False
        born = min(effect.due_at, datetime.now(UTC))
        self._shelf.once.add(effect.once)
        self._shelf.last_effect += 1
        number = EffectId(self._shelf.last_effect)
        self._shelf.effects[number] = Effect(
            id=number,
            kind=effect.kind,
            once=effect.once,
            lane=effect.lane,
            subject=effect.subject,
            order=effect.order,
            payload=payload,
            state=EffectState.DUE,
            due_at=effect.due_at,
            created_at=born,
            changed_at=born,
        )
        return True

    def claim(
        self, kinds: Collection[EffectKind], *, owner: str, now: datetime, lease: timedelta, limit: int
    ) -> tuple[Effect, ...]:
        """Take up to `limit` effects that are due, the first open one of each lane, longest due first."""
        self._lapse(now)
        found = [effect for effect in self._shelf.effects.values() if effect.kind in kinds and self._claimable(effect, now)]
        found.sort(key=lambda effect: (effect.due_at, effect.id))
        claimed = tuple(effect.claimed(owner, now, lease) for effect in found[: max(limit, 0)])
        self._shelf.effects.update({effect.id: effect for effect in claimed})
        return claimed

    def prolong(self, effect: Effect, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        there = self._shelf.effects.get(effect.id)
        if there is None or there.fence != effect.fence or there.lease_until is None:
            raise LeaseLostError()
        self._shelf.effects[effect.id] = replace(there, lease_until=now + lease)

    def save(self, effect: Effect) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        there = self._shelf.effects.get(effect.id)
        if there is None or there.fence != effect.fence:
            raise LeaseLostError()
        self._shelf.effects[effect.id] = replace(effect, payload=exact_json.loads(exact_json.dumps(effect.payload)))

    def get(self, effect: EffectId) -> Effect | None:
        """One effect."""
        return self._shelf.effects.get(effect)

    def of_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Effect, ...]:
        """The effects of an order, oldest first."""
        ours = (effect for effect in self._shelf.effects.values() if effect.order == order)
        return tuple(effect for effect in ours if not open_only or effect.state in OPEN_EFFECTS)

    def asking(self) -> tuple[Effect, ...]:
        """Effects that wait for a person (parked, or to be reviewed), oldest first."""
        return tuple(effect for effect in self._shelf.effects.values() if effect.state in ASKING_EFFECTS)

    def wake(self, kind: EffectKind, *, now: datetime) -> int:
        """Make waiting effects of a kind (due, or to be looked at, in the future) due now; their number."""
        effects = self._shelf.effects.values()
        waiting = [each for each in effects if each.kind is kind and each.state in CLAIMABLE and each.due_at > now]
        self._shelf.effects.update({effect.id: replace(effect, due_at=now) for effect in waiting})
        return len(waiting)

    def _lapse(self, now: datetime) -> None:
        for effect in tuple(self._shelf.effects.values()):
            if effect.state is EffectState.IN_FLIGHT and not _held(effect, now):
                self._shelf.effects[effect.id] = effect.lapsed(now)

    def _claimable(self, effect: Effect, now: datetime) -> bool:
        if effect.state not in CLAIMABLE or effect.due_at > now or _held(effect, now):
            return False
        lane = (each for each in self._shelf.effects.values() if each.lane == effect.lane and each.id != effect.id)
        return not any(each.state in LANE_BLOCKING and (each.id < effect.id or _held(each, now)) for each in lane)


def _held(effect: Effect, now: datetime) -> bool:
    return effect.lease_until is not None and effect.lease_until > now
