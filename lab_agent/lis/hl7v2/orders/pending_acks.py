"""Tracks who waits for the acknowledgement of which MSH-10."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from lab_agent.lis.hl7v2.acks import Ack


class PendingAcks:
    """Matches acknowledgements to sent messages, by MSA-2 alone, on whichever connection they arrive."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Ack]] = {}

    @contextmanager
    def expect(self, control_id: str) -> Iterator[asyncio.Queue[Ack]]:
        """Receive the acknowledgements of `control_id`."""
        queue: asyncio.Queue[Ack] = asyncio.Queue()
        self._queues[control_id] = queue
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
        return queue is not None
