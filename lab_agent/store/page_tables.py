"""Tables of the status page: who is signed in, and what was done in each hour."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Table
from sqlmodel import Field

from lab_agent.store.column_types import PlainText, UtcDateTime
from lab_agent.store.table_base import METADATA, TableRow


class StatusSessionRow(TableRow, table=True):
    """A sign-in to the status page (`SessionRecord`); `id` is the digest of what the cookie has."""

    __tablename__ = "status_sessions"

    id: str = Field(sa_type=PlainText, primary_key=True)
    account: str = Field(sa_type=PlainText, index=True)
    address: str = Field(sa_type=PlainText)
    started_at: datetime = Field(sa_type=UtcDateTime)
    seen_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)
    ended_at: datetime | None = Field(sa_type=UtcDateTime)


class HourlyActivityRow(TableRow, table=True):
    """How much of one kind was done in an hour, and how long it took (`HourlyActivity`)."""

    __tablename__ = "hourly_activity"

    hour: datetime = Field(sa_type=UtcDateTime, primary_key=True)
    measure: str = Field(sa_type=PlainText, primary_key=True)
    count: int
    median: float | None
    percentile_95: float | None


status_sessions: Table = METADATA.tables["status_sessions"]
hourly_activity: Table = METADATA.tables["hourly_activity"]
