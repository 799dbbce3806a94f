"""Users whom a reverse proxy names in a header (`[status.proxy]`).

The header counts only where the connection itself comes from a trusted address: X-Forwarded-For can be written by anybody. Such a
user has a session nevertheless, for the token in its forms; its cookie alone opens nothing without the header.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

from starlette.requests import Request

from lab_agent.operations.accounts import Account, Role, to_user_name
from lab_agent.shared.logs import get_logger
from lab_agent.shared.web_server import PEER_KEY
from lab_agent.status.auth import HttpError
from lab_agent.status.context import StatusContext
from lab_agent.status.forms import one_line
from lab_agent.status.session_start import client_address, note_sign_in, set_session_later
from lab_agent.status.sessions import SESSION_COOKIE, CurrentUser, Sessions, SignInWay, account_of, unstored_account
from lab_agent.status.translation import gettext
from lab_agent.store.audit_records import AuditAction, AuditEntry

_log = get_logger(__name__)

_MAX_NOTED = 2_000


class ProxyUsers:
    """Knows the users whom the proxy names."""

    def __init__(self, context: StatusContext, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions
        self._header = context.settings.proxy.header or ""
        self._networks = context.settings.proxy.trusted_networks
        self._role = context.settings.proxy.role
        self._noted: dict[tuple[str, str, str], datetime] = {}

    async def current_user(self, request: Request) -> CurrentUser | None:
        """The user whom the proxy names; None if it is no request of a trusted proxy, or names nobody.

        A session begins with the first request. Raises `HttpError` for a user without a role.
        """
        named = request.headers.getlist(self._header)
        if not named or not self._is_trusted(str(request.scope.get(PEER_KEY, ""))):
            return None
        if len(named) > 1:
            text = gettext("The reverse proxy passes on two headers %(header)s; it must replace what it was sent.")
            told = text % {"header": self._header}
            raise HttpError(told, 400)
        if not named[0].strip():
            return None
        stored, account = await self._find_account(request, named[0])
        session = self._sessions.current_session(request.cookies.get(SESSION_COOKIE))
        if session is not None and session.user == account.name:
            known = account_of(session, stored)
            if known is not None and known.role is account.role:
                admitted = await self._sessions.admit(session, known)
                if admitted is not None:
                    return admitted
        session = self._sessions.new(account, SignInWay.PROXY)
        await self._sessions.enlist(session, client_address(request))
        set_session_later(request, self._sessions.seal(session))
        await self._note(request, AuditAction.SIGNED_IN, account.name)
        return self._sessions.introduce(session, account)

    def forget(self, name: str) -> None:
        """Record the next sign-in of this user, who has signed out."""
        self._noted = {key: at for key, at in self._noted.items() if key[1] != name}

    async def _find_account(self, request: Request, named: str) -> tuple[Account | None, Account]:
        """The stored account of this name, if there is one, and the account that counts."""
        name = to_user_name(named)
        if name is None:
            await self._note(request, AuditAction.SIGN_IN_REJECTED, "")
            text = gettext("The reverse proxy names you %(name)r (%(header)s), and no user here can have that name.")
            told = text % {"name": one_line(named)[:64], "header": self._header}
            raise HttpError(told)
        stored = await self._context.accounts.get(name)
        if stored is not None:
            return stored, stored
        if self._role is None:
            await self._note(request, AuditAction.SIGN_IN_REJECTED, name)
            text = gettext(
                "The reverse proxy names you %(name)s (%(header)s), and there is no user of that name here."
                " `lab-agent user add %(name)s` makes one; status.proxy.role lets in all whom the proxy names."
            )
            told = text % {"name": name, "header": self._header}
            raise HttpError(told)
        return None, unstored_account(name, Role(self._role), self._context.clock.now())

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    async def _note(self, request: Request, action: AuditAction, name: str) -> None:
        """Record it once in the lifetime of a session: a program without cookies signs in with every request."""
        now, address = self._context.clock.now(), client_address(request)
        key = (action.value, name, address)
        if now - self._noted.get(key, now - timedelta(days=9999)) < self._sessions.lifetime:
            return
        self._noted.pop(key, None)
        self._noted[key] = now
        while len(self._noted) > _MAX_NOTED:
            del self._noted[next(iter(self._noted))]
        by = name if action is AuditAction.SIGNED_IN else None
        details = {"by": SignInWay.PROXY.value}
        entry = AuditEntry(at=now, action=action, subject=name, by=by, details=details, address=address)
        await note_sign_in(self._context, entry)
        log = _log.info if by else _log.warning
        log("user of the proxy", action=action.value, by=by, way=SignInWay.PROXY.value)
