"""Requests that the laboratory's API refused: counts by period, reason and client; never what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Executable, Table, bindparam, delete, func, select
from sqlmodel import Column, Field

from lab_agent.store.column_types import EnumText, IndexableText, UtcDateTime
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.table_base import METADATA, TableRow

PROBE_USER_AGENT = "lab-agent-probe"
"""How the agent introduces itself when it looks whether the API answers: it is not counted among the callers."""
PERIOD = timedelta(minutes=5)
"""What is counted together."""
KEPT = timedelta(days=2)
"""How long the counts are kept."""


class RefusalReason(StrEnum):
    """Why a request is refused. A basket that the catalogue contradicts (422) is an answer to the clinic, and no refusal."""

    NO_CREDENTIALS = "no_credentials"  # 401
    WRONG_CREDENTIALS = "wrong_credentials"  # 401: an unknown token, user or password
    TOKEN_EXPIRED = "token_expired"  # noqa: S105 - 401
    TOKEN_REVOKED = "token_revoked"  # noqa: S105 - 401
    UNKNOWN_CONTRACT = "unknown_contract"  # 404: there is none, or the client may not see it
    TOO_MANY_REQUESTS = "too_many_requests"  # 429
    INVALID_REQUEST = "invalid_request"  # 400, 413, 415: it is not what the interface specifies


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRefusals:
    """`count` requests of one `client` (empty: nobody knows whose) that were refused for one reason."""

    reason: RefusalReason
    client: str = ""
    count: int
    first_at: datetime
    last_at: datetime


def period_start(at: datetime) -> datetime:
    """The beginning of the period that counts what happens `at` this time."""
    return at - (at - datetime.min.replace(tzinfo=at.tzinfo)) % PERIOD


class ApiRefusalRow(TableRow, table=True):
    """How many requests of a client were refused for a reason in the five minutes from `start`."""

    __tablename__ = "api_refusals"
    start: datetime = Field(sa_type=UtcDateTime, primary_key=True)
    reason: RefusalReason = Field(sa_column=Column(EnumText(RefusalReason), primary_key=True))
    client: str = Field(sa_type=IndexableText, primary_key=True)
    count: int
    first_at: datetime = Field(sa_type=UtcDateTime)
    last_at: datetime = Field(sa_type=UtcDateTime)


api_refusals: Table = METADATA.tables["api_refusals"]
_COUNT = api_refusals.c["count"]


def _count_up(insert: Any) -> Executable:
    more = {"count": _COUNT + insert.excluded["count"], "last_at": insert.excluded.last_at}
    counted: Executable = insert.on_conflict_do_update(index_elements=["start", "reason", "client"], set_=more)
    return counted


_ADD = Write.insert(api_refusals, _count_up)
_FORGET = Write.of(api_refusals, delete(api_refusals).where(api_refusals.c.start < bindparam("before")))
_SINCE = Query(
    select(
        api_refusals.c.reason,
        api_refusals.c.client,
        func.sum(_COUNT).label("count"),
        func.min(api_refusals.c.first_at).label("first_at"),
        func.max(api_refusals.c.last_at).label("last_at"),
    )
    .where(api_refusals.c.start > bindparam("since"))
    .group_by(api_refusals.c.reason, api_refusals.c.client)
    .order_by(api_refusals.c.reason, api_refusals.c.client)
)


class ApiRefusalRepository:
    """Counts of refused requests, by period, reason and client."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, refusals: Sequence[ApiRefusals], *, now: datetime) -> None:
        """Add to the counts, each to that of the period of its `first_at`, and forget those older than `KEPT`."""
        for each in refusals:
            row = {"reason": each.reason, "client": each.client, "count": each.count}
            times = {"start": period_start(each.first_at), "first_at": each.first_at, "last_at": each.last_at}
            self._session.send(_ADD, {**row, **times})
        self._session.send(_FORGET, {"before": now - KEPT})

    def since(self, moment: datetime) -> tuple[ApiRefusals, ...]:
        """What was refused in the periods that had not ended at `moment`, in one sum for each reason and client."""
        rows = self._session.execute(_SINCE, {"since": moment - PERIOD})
        return tuple(ApiRefusals(**row) for row in rows.mappings())
