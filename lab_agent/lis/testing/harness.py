"""A bench: the laboratory system (or a stand-in) and the adapter on it; and the agent's way of handing an order over.

An inbox that keeps what it is given in memory, and can be made to fail before or after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lab_agent.domain.lab_messages import LabMessage
from lab_agent.domain.lab_order import LabOrder
from lab_agent.errors import LisUnavailable, StoreUnreachableError
from lab_agent.ports.lis import Lis


class Bench(Protocol):
    """What the suite has to know of the laboratory system, and make it do."""

    def adapter(self) -> Lis:
        """Make a new adapter on the same LIS, as a new start of the agent would."""
        ...

    async def orders(self) -> Sequence[str]:
        """Give the keys of the orders that the LIS got, one for each time that it got one."""
        ...

    async def cancelled_lines(self) -> Sequence[str]:
        """Give the keys of the lines that the LIS was told are withdrawn (repeats do not matter)."""
        ...

    async def publish(self, message: LabMessage) -> None:
        """Let the LIS report something."""
        ...

    async def unacknowledged_count(self) -> int:
        """Give the number of reports that the LIS would give again, since nobody has acknowledged them."""
        ...

    async def close(self) -> None:
        """Clear away what the bench opened."""
        ...


async def submit_order(adapter: Lis, order: LabOrder) -> None:
    """Do what the agent does: prepare, (commit,) submit."""
    await adapter.prepare(order)
    await adapter.submit(order)


async def resume_submit(adapter: Lis, order: LabOrder, *, prepared_committed: bool) -> bool:
    """Do what the agent does after it died in a handover; `committed` says whether *prepared* was. False: a person decides."""
    if not prepared_committed:
        await submit_order(adapter, order)
        return True
    known = await adapter.was_received(order.key)
    if known is False or (known is None and adapter.idempotent):
        await adapter.submit(order)
        return True
    return known is True


@dataclass(slots=True)
class MemoryInbox:
    """An `Inbox`. `fail_before` of the next calls keep nothing and raise; `fail_after` of the next ones keep it and raise then.

    The second is what an agent looks like to a LIS when it dies between its commit and the acknowledgement.
    """

    messages: dict[str, LabMessage] = field(default_factory=dict)
    rejections: dict[str, str] = field(default_factory=dict)
    attempts: int = 0
    fail_before: int = 0
    fail_after: int = 0

    async def accept(self, message: str, content: LabMessage) -> bool:
        """Keep a message; False if it was kept before."""
        self.attempts += 1
        if self.fail_before:
            self.fail_before -= 1
            raise StoreUnreachableError
        new = message not in self.messages
        self.messages.setdefault(message, content)
        if self.fail_after:
            self.fail_after -= 1
            raise LisUnavailable("the agent died here")
        return new

    async def was_accepted(self, message: str) -> bool:
        """Whether a message of that name was kept before."""
        return message in self.messages

    async def refused(self, message: str, reason: str) -> None:
        """Remember a refusal."""
        self.rejections[message] = reason

    @property
    def contents(self) -> list[LabMessage]:
        """What was kept, in the order in which it came."""
        return list(self.messages.values())
