"""Requests that the laboratory's API refused: why, whose, and how many; never what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

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
