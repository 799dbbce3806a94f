"""Who is signed in: a sealed cookie that says who, since when, and which form token belongs to it.

Nothing is kept on the server but the ids of sessions that were ended before their time; so a restart of the agent signs nobody
out. A session ends when its hours are over, when the user signs out or is removed, and when role or password change.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from lab_agent.accounts import Account, Accounts
from lab_agent.crypto import Cipher
from lab_agent.errors import CryptoError

SESSION_COOKIE = "lab_agent_session"
_COOKIE_PREFIX = b"status-session-1:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the cookie holds. `changed_at` is the account's, `form_token` stands in every form of this session."""

    id: str
    user: str
    account_changed_at: str
    started_at: str
    csrf_token: str


@dataclass(frozen=True, slots=True)
class CurrentUser:
    """Somebody who is signed in."""

    session: Session
    account: Account


class Sessions:
    """Begins, reads and ends sessions."""

    def __init__(self, cipher: Cipher, accounts: Accounts, lifetime: timedelta) -> None:
        self._cipher = cipher
        self._accounts = accounts
        self.lifetime = lifetime
        self._ended_sessions: dict[str, datetime] = {}

    def start(self, account: Account, now: datetime) -> str:
        """Give the cookie of a new session."""
        session = Session(
            id=secrets.token_urlsafe(16),
            user=account.name,
            account_changed_at=account.changed_at.isoformat(),
            started_at=now.isoformat(),
            csrf_token=secrets.token_urlsafe(24),
        )
        return self._cipher.encrypt(_COOKIE_PREFIX + json.dumps(asdict(session)).encode()).decode("ascii")

    async def current_user(self, cookie: str | None, now: datetime) -> CurrentUser | None:
        """Give who is signed in with this cookie; None if it is nobody (any more)."""
        session = self._decrypt(cookie) if cookie else None
        if session is None or session.id in self._ended_sessions or not self._is_valid(session, now):
            return None
        account = await self._accounts.get(session.user)
        if account is None or account.changed_at.isoformat() != session.account_changed_at:
            return None
        return CurrentUser(session, account)

    def end(self, session: Session, now: datetime) -> None:
        """End a session before its time, whoever still holds its cookie."""
        self._ended_sessions = {key: until for key, until in self._ended_sessions.items() if until > now}
        self._ended_sessions[session.id] = now + self.lifetime

    def _is_valid(self, session: Session, now: datetime) -> bool:
        began = datetime.fromisoformat(session.started_at)
        return began <= now < began + self.lifetime

    def _decrypt(self, cookie: str) -> Session | None:
        """Open the seal. What is sealed with the same key for another purpose lacks the mark."""
        try:
            content = self._cipher.decrypt(cookie.encode())
        except CryptoError:
            return None
        if not content.startswith(_COOKIE_PREFIX):
            return None
        fields: dict[str, Any] = json.loads(content.removeprefix(_COOKIE_PREFIX))
        return Session(**fields)
