"""The tables of notifications: what each channel has told of which alert, and how sending went."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, Table
from sqlmodel import Field

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.column_types import EnumText, IndexableText, PlainText, TextTuple, UtcDateTime
from lab_agent.store.table_base import METADATA, TableRow


class NotificationRow(TableRow, table=True):
    """One alert as one channel tells it (`Notification`)."""

    __tablename__ = "notifications"
    channel: str = Field(sa_type=PlainText, primary_key=True)
    condition: ConditionId = Field(sa_column=Column(EnumText(ConditionId), primary_key=True))
    subject: str = Field(sa_type=IndexableText, primary_key=True)
    since: datetime = Field(sa_type=UtcDateTime)
    noticed_at: datetime = Field(sa_type=UtcDateTime)
    told_at: datetime | None = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(sa_type=UtcDateTime)
    affected: str = Field(sa_type=PlainText)
    message_id: str = Field(sa_type=PlainText)


class NotificationChannelRow(TableRow, table=True):
    """How sending through a channel went (`ChannelRecord`)."""

    __tablename__ = "notification_channels"
    name: str = Field(sa_type=PlainText, primary_key=True)
    failures: int
    reason: str = Field(sa_type=PlainText)
    retry_at: datetime | None = Field(sa_type=UtcDateTime)
    reminded_at: datetime | None = Field(sa_type=UtcDateTime)
    sent_at: tuple[str, ...] = Field(sa_type=TextTuple)


notifications: Table = METADATA.tables["notifications"]
notification_channels: Table = METADATA.tables["notification_channels"]
