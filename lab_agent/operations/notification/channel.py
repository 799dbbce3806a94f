"""What every channel is, and how sending through one may fail."""

from __future__ import annotations

from typing import Protocol

from lab_agent.operations.notification.message import Message
from lab_agent.shared.errors import TemporaryFailure


class NotificationNotSent(TemporaryFailure):
    """A notification could not be sent; the text says why in words that may be shown and logged."""


class Channel(Protocol):
    """A way out of the machine."""

    @property
    def name(self) -> str:
        """Its table in the settings without `notify`, as in `email.it`."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds after which every sending has ended."""
        ...

    async def send(self, message: Message) -> str:
        """Send one; gives what went wrong although it was sent, else an empty text. Raises `NotificationNotSent`."""
        ...
