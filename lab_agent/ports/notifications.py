"""The store's part for notifications."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lab_agent.domain.notifications import ChannelRecord, Notification


class NotificationRepository(Protocol):
    """What each channel has told."""

    def all(self) -> tuple[Notification, ...]:
        """Everything that was told and whose end was not, and what is to be told."""
        ...

    def save(self, notifications: Iterable[Notification]) -> None:
        """Write or replace them."""
        ...

    def delete(self, notifications: Iterable[Notification]) -> None:
        """Delete them."""
        ...

    def channels(self) -> tuple[ChannelRecord, ...]:
        """How sending went, for each channel that was used."""
        ...

    def save_channel(self, channel: ChannelRecord) -> None:
        """Write or replace one."""
        ...
