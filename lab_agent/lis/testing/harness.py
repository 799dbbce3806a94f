"""What the contract suite runs on: the bench (a LIS with the adapter on it), the agent's submit protocol, an in-memory inbox."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Lis
from lab_agent.shared.errors import LisUnavailable, StoreUnreachableError


class LisState(StrEnum):
    """What a laboratory system may be like, in the words of the reason for a skipped test."""

    WORKING = "working"
    UNREACHABLE = "unreachable"
    """Switched off, or the network is down: nothing that is sent arrives."""
    SILENT = "silent"
    """It takes an order, and its answer is lost."""
    REFUSING = "refusing"
    """It rejects orders for good, and takes none."""
    BUSY = "busy"
    """It takes nothing, and asks to try again in some seconds."""
    SLOW = "slow"
    """It answers, or lets go of a lock, most of a second late, or more."""


class Bench(Protocol):
    """What the suite needs to see of the laboratory system, and to make it do."""

    def adapter(self) -> Lis:
        """Make a new adapter on the same LIS, as a restart of the agent would."""
        ...

    async def orders(self) -> Sequence[str]:
        """Keys of the orders that the LIS received; an order received twice is listed twice."""
        ...

    async def cancelled_lines(self) -> Sequence[str]:
        """Keys of the lines that the LIS was told to cancel; repeats do not matter."""
        ...

    async def publish(self, message: LabMessage) -> None:
        """Make the LIS report this message."""
        ...

    async def unacknowledged_count(self) -> int:
        """Number of messages that the LIS would deliver again because nobody acknowledged them."""
        ...

    async def publish_bad(self) -> None:
        """Make the LIS report something that no adapter can read, another one with each call."""
        ...

    async def bad_results_kept(self) -> int:
        """Number of bad results that somebody can still find: set aside, marked, or never acknowledged."""
        ...

    async def set_state(self, state: LisState) -> None:
        """Make the LIS be so from now on. Raises `NotImplementedError` for what cannot happen with it: the test is skipped."""
        ...

    async def close(self) -> None:
        """Release what the bench opened, whatever its state."""
        ...


async def submit_order(adapter: Lis, order: LabOrder) -> None:
    """Submit an order as the agent does: prepare, (commit,) submit."""
    await adapter.prepare(order)
    await adapter.submit(order)


async def resume_submit(adapter: Lis, order: LabOrder, *, prepared_committed: bool) -> bool:
    """Do what the agent does after a crash during submission. Returns False where an operator would have to decide.

    `prepared_committed` says whether the crash came after *prepared* was committed.
    """
    if not prepared_committed:
        await submit_order(adapter, order)
        return True
    known = await adapter.was_received(order.key)
    if known is False or (known is None and adapter.idempotent):
        await adapter.submit(order)
        return True
    return known is True


_SEALED = b"sealed:"


@dataclass(slots=True)
class MemoryInbox:
    """An in-memory `Inbox` that fails on request.

    The next `fail_before` calls of `accept` raise without storing anything; the next `fail_after` calls store the message and
    raise then, like an agent that dies between its commit and the acknowledgement.
    """

    messages: dict[str, LabMessage] = field(default_factory=dict)
    rejections: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    alerts: dict[str, str] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    attempts: int = 0
    fail_before: int = 0
    fail_after: int = 0

    async def accept(self, message_id: str, message: LabMessage) -> bool:
        """Store a message; False if it was stored before."""
        self.attempts += 1
        if self.fail_before:
            self.fail_before -= 1
            raise StoreUnreachableError
        new = message_id not in self.messages
        self.messages.setdefault(message_id, message)
        if self.fail_after:
            self.fail_after -= 1
            raise LisUnavailable("the agent died here")
        return new

    async def accept_all(self, messages: Mapping[str, LabMessage]) -> frozenset[str]:
        """Store several messages, or none; gives the ids of those that are new."""
        before = dict(self.messages)
        try:
            return frozenset([name for name, message in messages.items() if await self.accept(name, message)])
        except StoreUnreachableError:
            self.messages = before
            raise

    async def was_accepted(self, message_id: str) -> bool:
        """Whether a message with that id was stored before."""
        return message_id in self.messages

    async def find_accepted(self, message_ids: Collection[str]) -> frozenset[str]:
        """Those of these ids whose messages were stored before."""
        return frozenset(name for name in message_ids if name in self.messages)

    async def reject(self, message_id: str, reason: str, *, raw: bytes | None = None) -> None:
        """Remember the reason of a rejection, and the message as it came."""
        self.rejections[message_id] = reason
        if raw is not None:
            self.raw[message_id] = raw

    async def skip(self, message_id: str, reason: str) -> None:
        """Remember what was left out on purpose."""
        self.skipped[message_id] = reason

    async def alert(self, key: str, text: str | None) -> None:
        """Remember the alerts that are open."""
        self.alerts.pop(key, None)
        if text is not None:
            self.alerts[key] = text

    async def seal(self, content: bytes) -> bytes:
        """Make it unreadable; no secret is kept by it."""
        return _SEALED + bytes(byte ^ 0xFF for byte in content)

    async def unseal(self, sealed: bytes) -> bytes | None:
        """Give back what was sealed."""
        return bytes(byte ^ 0xFF for byte in sealed.removeprefix(_SEALED)) if sealed.startswith(_SEALED) else None

    @property
    def contents(self) -> list[LabMessage]:
        """The stored messages, in order of arrival."""
        return list(self.messages.values())
