"""Tells what is about the store, which the store cannot keep: what each channel has told is kept in memory, and in a small file.

The waiting start and the worker share one `MemoryBook`, and the file carries it to the next process: the start of an outage is
told once, and so is its end, by whichever process is there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from lab_agent.operations.notification.planning import Situation
from lab_agent.operations.notification.sending import Outcome, Teller, repeat_whole, send_all
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.conditions.model import AlertKey, ConditionId, OpenCondition
from lab_agent.store.notification_records import ChannelRecord, Notification

log = structlog.get_logger(__name__)

_TIMES = frozenset({"since", "noticed_at", "told_at", "ended_at", "retry_at", "reminded_at"})


@dataclass(slots=True)
class MemoryBook:
    """What each channel has told that is in no store. It is kept at `path`, where one is given and can be written."""

    path: Path | None = None
    told: dict[str, dict[AlertKey, Notification]] = field(default_factory=dict)
    records: dict[str, ChannelRecord] = field(default_factory=dict)
    _is_failing: bool = False

    @classmethod
    def load(cls, path: Path | None) -> MemoryBook:
        """Read the book of a former process; an empty one where there is none, or it cannot be read, which is logged."""
        book = cls(path)
        try:
            content = {} if path is None or not path.exists() else json.loads(path.read_bytes())
            notifications = [Notification(**_from_json(each)) for each in content.get("told", ())]
            records = [ChannelRecord(**_from_json(each)) for each in content.get("channels", ())]
        except (OSError, ValueError, TypeError, AttributeError) as exc:
            log.warning("what was told of the database is not known", action="told_not_read", reason=str(exc))
            return book
        for each in notifications:
            book.told.setdefault(each.channel, {})[each.key] = each
        book.records = {each.name: each for each in records}
        return book

    def save(self) -> None:
        """Keep it for the next process. It blocks. That it cannot be written is logged once: the disk may be what is wrong."""
        if self.path is None:
            return
        told = [_to_json(each) for of_channel in self.told.values() for each in of_channel.values()]
        content = {"told": told, "channels": [_to_json(each) for each in self.records.values()]}
        try:
            if told:
                write_atomically(self.path, json.dumps(content).encode())
            else:
                self.path.unlink(missing_ok=True)
        except OSError as exc:
            if not self._is_failing:
                log.warning("what was told of the database is not kept", action="told_not_kept", reason=str(exc))
            self._is_failing = True
        else:
            self._is_failing = False


@dataclass(slots=True)
class MemoryNotifier:
    """Tells what `observed` gives, at its start and at its end, by the same rules as what is in the store."""

    teller: Teller
    observed: Callable[[], Sequence[OpenCondition]]
    book: MemoryBook
    interval: float = 10.0

    async def run(self) -> None:
        """Tell until cancelled. A message that is being sent then may arrive, and is remembered."""
        await repeat_whole(self._look_guarded, self.interval)

    async def look(self) -> None:
        """Look once, and tell what is due."""
        observed = tuple(self.observed())
        if not observed and not any(self.book.told.values()):
            return
        told, records = self.book.told, self.book.records
        plans = self.teller.plan(Situation.of((), None, observed), told, records)
        for name, plan in plans.items():
            known = told.setdefault(name, {})
            known |= {each.key: each for each in plan.changed}
            for each in plan.dropped:
                known.pop(each.key, None)
        for name in told.keys() - plans.keys():  # a channel that is set no more
            del told[name]
        outcomes = await send_all(self.teller.to_outgoing(plans, told, records, None))
        for outcome in outcomes:
            self._remember(outcome)
        if outcomes or any(plan.changed or plan.dropped for plan in plans.values()):
            await asyncio.to_thread(self.book.save)

    async def _look_guarded(self) -> None:
        try:
            await self.look()
        except Exception:  # boundary: a bug in a channel does not end the daemon; it is logged whole
            log.exception("notifications failed", action="notifications_failed")

    def _remember(self, outcome: Outcome) -> None:
        record, saved, ended = outcome.settle(self.teller.clock.now())
        self.book.records[record.name] = record
        known = self.book.told[record.name]
        known |= {each.key: each for each in saved}
        for each in ended:
            known.pop(each.key, None)


def _to_json(record: Notification | ChannelRecord) -> dict[str, Any]:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def _from_json(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: datetime.fromisoformat(value) if name in _TIMES and value is not None else value for name, value in values.items()
    }
    if "condition" in found:
        found["condition"] = ConditionId(found["condition"])
    if "sent_at" in found:
        found["sent_at"] = tuple(found["sent_at"])
    return found
