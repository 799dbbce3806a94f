"""An inbox that keeps what it is given in memory, and can be made to fail before or after that."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab_agent.domain.results import LabMessage
from lab_agent.errors import LisUnavailable, StoreUnreachableError


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
