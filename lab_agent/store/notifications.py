"""What notification channels have told."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, delete, select

from lab_agent.store.notification_records import ChannelRecord, Notification
from lab_agent.store.notification_tables import notification_channels, notifications
from lab_agent.store.row_mapping import RecordMapping, upsert_by
from lab_agent.store.session import Query, Session, Write

_NOTIFICATIONS = RecordMapping(Notification, notifications)
_CHANNELS = RecordMapping(ChannelRecord, notification_channels)
_ALL = Query(select(*_NOTIFICATIONS.columns).order_by(notifications.c.noticed_at, notifications.c.subject))
_ALL_CHANNELS = Query(select(*_CHANNELS.columns).order_by(notification_channels.c.name))
_SAVE = Write.insert(notifications, upsert_by("channel", "condition", "subject"))
_SAVE_CHANNEL = Write.insert(notification_channels, upsert_by("name"))
_DELETE = Write.of(
    notifications,
    delete(notifications).where(
        notifications.c.channel == bindparam("of_channel"),
        notifications.c.condition == bindparam("of_condition", type_=notifications.c.condition.type),
        notifications.c.subject == bindparam("of_subject"),
    ),
)


class NotificationRepository:
    """The tables `notifications` and `notification_channels`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> tuple[Notification, ...]:
        """Everything that was told and whose end was not, and what is to be told."""
        return _NOTIFICATIONS.to_records(self._session.execute(_ALL))

    def save(self, notifications: Iterable[Notification]) -> None:
        """Write or replace them."""
        self._append(_SAVE, [_NOTIFICATIONS.to_values(each) for each in notifications])

    def delete(self, notifications: Iterable[Notification]) -> None:
        """Delete them."""
        self._append(_DELETE, [_which(each) for each in notifications])

    def channels(self) -> tuple[ChannelRecord, ...]:
        """How sending went, for each channel that was used."""
        return _CHANNELS.to_records(self._session.execute(_ALL_CHANNELS))

    def save_channel(self, channel: ChannelRecord) -> None:
        """Write or replace one."""
        self._session.put(_SAVE_CHANNEL, channel.name, _CHANNELS.to_values(channel))

    def _append(self, write: Write, rows: list[dict[str, object]]) -> None:
        if rows:
            self._session.append(write, rows)


def _which(each: Notification) -> dict[str, object]:
    return {"of_channel": each.channel, "of_condition": each.condition, "of_subject": each.subject}
