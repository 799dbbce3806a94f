"""Records of credentials: our sign-in at the service, users of the status page and their sessions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a user of the status page may do: see; also retry, release and dismiss; also manage users."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """A user of the status page. `name` is in lower case; of the password only the Argon2 hash is kept.

    `may_reveal` is the right to search for patients and to see their names, which no role has by itself.
    """

    name: str
    role: Role
    password_hash: str
    created_at: datetime
    changed_at: datetime
    may_reveal: bool = False
    must_change_password: bool = False
    """Whether somebody else chose the password, so that its owner has to choose another one at the next sign-in."""


MAX_TOKEN_LENGTH = 8_192
"""Characters. Hardly a server takes a header that is longer."""
_SENDABLE_TOKEN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""What a header can hold, without blanks at its ends, which are not sent (RFC 6749, A.12; RFC 9110, 5.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """The OAuth tokens for the exchange service; every refresh is a new generation.

    `signed_in_at` stays with each refresh, `obtained_at` is that of this generation; None for one from before they were kept.
    """

    generation: int
    access_token: str
    refresh_token: str | None
    expires_at: datetime | None
    signed_in_at: datetime | None = None
    obtained_at: datetime | None = None

    @property
    def is_sendable(self) -> bool:
        """Whether the access token can be sent: an earlier program, or another one, may have stored one that cannot."""
        return is_sendable_token(self.access_token)


def is_sendable_token(text: str) -> bool:
    """Whether a header can hold a token."""
    return len(text) <= MAX_TOKEN_LENGTH and _SENDABLE_TOKEN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A sign-in to the status page. `id` is the digest of what the cookie has, `address` where it came from.

    `seen_at` is its last request, to the minute; `ended_at` is when it was ended before its time, by its user or by an admin.
    """

    id: str
    account: str
    address: str
    started_at: datetime
    seen_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None
