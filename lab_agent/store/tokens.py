"""Our sign-in at the service, encrypted (`ports.store.Tokens`)."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, select

from lab_agent.crypto import Cipher
from lab_agent.domain.journal import StoredToken
from lab_agent.errors import LeaseLostError
from lab_agent.store.rows import insert_new, put
from lab_agent.store.tables import leases, tokens

_REFRESH = "token.refresh"
_NEWER = "This generation of the sign-in, or a newer one, is stored already; nothing was written."


class SqlTokens:
    """Generations of tokens, and the lease of the right to refresh them."""

    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    def current(self) -> StoredToken | None:
        """The newest generation. Raises `CryptoError`."""
        row = self._connection.execute(select(tokens).order_by(tokens.c.generation.desc()).limit(1)).one_or_none()
        if row is None:
            return None
        return StoredToken(
            generation=row.generation,
            access_token=self._cipher.decrypt(row.access).decode(),
            refresh_token=None if row.refresh is None else self._cipher.decrypt(row.refresh).decode(),
            expires_at=row.expires_at,
        )

    def put(self, token: StoredToken) -> None:
        """Store the next generation, and forget all but the one before it. Raises `LeaseLostError` if it is not the newest."""
        newest = self._connection.scalar(select(func.max(tokens.c.generation)))
        refresh = token.refresh_token
        values = {
            "generation": token.generation,
            "access": self._cipher.encrypt(token.access_token.encode()),
            "refresh": None if refresh is None else self._cipher.encrypt(refresh.encode()),
            "expires_at": token.expires_at,
        }
        if (newest is not None and newest >= token.generation) or not insert_new(self._connection, tokens, values):
            raise LeaseLostError(_NEWER)
        self._connection.execute(delete(tokens).where(tokens.c.generation < token.generation - 1))

    def take_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take the right to refresh, for one process at a time. False while another holds it."""
        free = (leases.c.until <= now) | (leases.c.owner == owner)
        return put(self._connection, leases, {"name": _REFRESH, "owner": owner, "until": now + lease}, "name", free)

    def drop_refresh_lease(self, owner: str) -> None:
        """Give the right to refresh back; harmless where another holds it by now."""
        self._connection.execute(delete(leases).where(leases.c.name == _REFRESH, leases.c.owner == owner))
