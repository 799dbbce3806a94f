"""What a notification channel has told, and still has to tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lab_agent.shared.conditions.model import AlertKey, ConditionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One alert as one channel tells it, from its start until its end was told.

    `noticed_at` is when the channel could first have told it; `told_at` when it did, with `affected` as it was counted then, in
    the message `message_id`. `ended_at` is when the alert was open no more.
    """

    channel: str
    condition: ConditionId
    subject: str
    since: datetime
    noticed_at: datetime
    told_at: datetime | None = None
    ended_at: datetime | None = None
    affected: str = ""
    message_id: str = ""

    @property
    def key(self) -> AlertKey:
        """The alert."""
        return AlertKey(self.condition, self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRecord:
    """How sending through a channel went.

    `failures` in a row so far, the last for `reason`; nothing is sent before `retry_at`. `sent_at` are the times of what was sent
    within the last hour, in ISO 8601, and `reminded_at` when it last told all that is open.
    """

    name: str
    failures: int = 0
    reason: str = ""
    retry_at: datetime | None = None
    reminded_at: datetime | None = None
    sent_at: tuple[str, ...] = ()
