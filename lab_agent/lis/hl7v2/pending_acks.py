"""Tracks acknowledgements: who waits for which MSH-10, and what the final answer to a message was."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from lab_agent.lis.hl7v2.acks import Ack

_MAX_REMEMBERED = 10_000


class PendingAcks:
    """Matches acknowledgements to sent messages, by MSA-2 alone."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Ack]] = {}
        self._final_acks: OrderedDict[str, Ack] = OrderedDict()
        self._sent_ids: OrderedDict[str, list[str]] = OrderedDict()

    @contextmanager
    def expect(self, control_id: str, target: str) -> Iterator[asyncio.Queue[Ack]]:
        """Receive the acknowledgements of `control_id`, which is about `target` (such as an order's key)."""
        queue: asyncio.Queue[Ack] = asyncio.Queue()
        self._queues[control_id] = queue
        self._record_sent(target, control_id)
        try:
            yield queue
        finally:
            if self._queues.get(control_id) is queue:
                del self._queues[control_id]

    def resolve(self, ack: Ack) -> bool:
        """Pass an acknowledgement to whoever waits for it; False if nobody does."""
        queue = self._queues.get(ack.control_id)
        if queue is not None:
            queue.put_nowait(ack)
        if not ack.is_commit:
            self.record_final(ack)
        return queue is not None

    def record_final(self, ack: Ack) -> None:
        """Remember the final acknowledgement of a message."""
        self._final_acks[ack.control_id] = ack
        while len(self._final_acks) > _MAX_REMEMBERED:
            self._final_acks.popitem(last=False)

    def was_received(self, target: str) -> bool | None:
        """What the acknowledgements since the start of this process say: yes to any attempt, or no to the last one."""
        sent = self._sent_ids.get(target, [])
        acks = [self._final_acks.get(control_id) for control_id in sent]
        if any(ack is not None and ack.is_positive for ack in acks):
            return True
        return None if not acks or acks[-1] is None else False

    def target_of(self, control_id: str) -> str | None:
        """What a message of ours was about; None if this process did not send it."""
        return next((target for target, sent in reversed(self._sent_ids.items()) if control_id in sent), None)

    def _record_sent(self, target: str, control_id: str) -> None:
        sent = self._sent_ids.setdefault(target, [])
        if control_id not in sent:
            sent.append(control_id)
        while len(self._sent_ids) > _MAX_REMEMBERED:
            self._sent_ids.popitem(last=False)
