"""Bounds what the connections of an adapter hold together of messages that have not ended.

Beyond the bound, whoever sends a long message is not read from: TCP lets it wait. If that makes no room within `patience`, since
nobody finishes, the longest unfinished message goes with its connection; its sender got no acknowledgement and sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

SMALL_BYTES = 65536
"""What has no more than this of a message goes on in any case, so that long messages do not stop short ones."""


class InputHolder(Protocol):
    """A connection with an unfinished message."""

    closed: asyncio.Event

    @property
    def is_handling(self) -> bool:
        """Whether a message of it has ended and is being stored: that makes room by itself."""
        ...

    async def abort(self) -> None:
        """Close it, and drop what it holds."""
        ...


class InputBudget:
    """At most about `max_bytes` of unfinished input; `patience` in seconds, and `on_abort` is told whose connection is closed."""

    def __init__(self, max_bytes: int, patience: float, on_abort: Callable[[InputHolder, int], None]) -> None:
        self._max_bytes = max_bytes
        self._patience = patience
        self._on_abort = on_abort
        self._held: dict[InputHolder, int] = {}
        self._freed = asyncio.Event()
        self._abort_lock = asyncio.Lock()

    @property
    def total(self) -> int:
        """Bytes held by all connections."""
        return sum(self._held.values())

    async def hold(self, holder: InputHolder, size: int) -> None:
        """Record what a connection holds of an unfinished message, and wait until there is room for more of it."""
        if size < self._held.get(holder, 0):
            self._freed.set()
        self._held[holder] = size
        if not size:
            del self._held[holder]
        while size > SMALL_BYTES and self.total > self._max_bytes and not holder.closed.is_set():
            if not await self._room_was_made():
                await self._abort_longest()

    def release(self, holder: InputHolder) -> None:
        """Forget a connection that is closed."""
        if self._held.pop(holder, 0):
            self._freed.set()

    async def _room_was_made(self) -> bool:
        self._freed.clear()
        try:
            async with asyncio.timeout(self._patience):
                await self._freed.wait()
        except TimeoutError:
            return False
        return True

    async def _abort_longest(self) -> None:
        """Close the connection that holds most; of several that wait, one does so, and the others look again."""
        async with self._abort_lock:
            unfinished = [holder for holder in self._held if not holder.is_handling]
            if self.total <= self._max_bytes or not unfinished:
                return
            longest = max(unfinished, key=self._held.__getitem__)
            self._on_abort(longest, self._held[longest])
            self.release(longest)
            await longest.abort()
