"""Answers on their way: who waits for which MSH-10, and what was said in the end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from lab_agent.lis.hl7v2.acknowledgements import Answer

_REMEMBERED = 10_000


class Waiting:
    """Matches answers to what was sent, by MSA-2 and by nothing else."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Answer]] = {}
        self._last: OrderedDict[str, Answer] = OrderedDict()
        self._sent: OrderedDict[str, list[str]] = OrderedDict()

    @contextmanager
    def expect(self, control_id: str, subject: str) -> Iterator[asyncio.Queue[Answer]]:
        """Wait for the answers to `control_id`, which is about `subject` (an order's key)."""
        queue: asyncio.Queue[Answer] = asyncio.Queue()
        self._queues[control_id] = queue
        self._note(subject, control_id)
        try:
            yield queue
        finally:
            if self._queues.get(control_id) is queue:
                del self._queues[control_id]

    def take(self, answer: Answer) -> bool:
        """Give an answer to whoever waits for it; False if nobody does."""
        queue = self._queues.get(answer.about)
        if queue is not None:
            queue.put_nowait(answer)
        if not answer.commit:
            self.remember(answer)
        return queue is not None

    def remember(self, answer: Answer) -> None:
        """Keep the last word about a message."""
        self._last[answer.about] = answer
        while len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def received(self, subject: str) -> bool | None:
        """Say what the answers of this process's time tell: a yes to any attempt, or a no to the last one."""
        sent = self._sent.get(subject, [])
        answers = [self._last.get(control_id) for control_id in sent]
        if any(answer is not None and answer.positive for answer in answers):
            return True
        return None if not answers or answers[-1] is None else False

    def subject(self, control_id: str) -> str | None:
        """Give what a message of ours was about; None if it was not sent by this process."""
        return next((subject for subject, sent in reversed(self._sent.items()) if control_id in sent), None)

    def _note(self, subject: str, control_id: str) -> None:
        sent = self._sent.setdefault(subject, [])
        if control_id not in sent:
            sent.append(control_id)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)
