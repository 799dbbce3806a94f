"""Our sign-in at the service: one refresh at a time over all processes, and nothing used before it is stored.

Between processes the store's refresh lease decides who asks; it outlasts the call. Within a process one task asks for all
and is shielded from its callers' cancellation, since a refresh that is dropped half-way may have used up the refresh token.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from lab_agent.domain.journal import StoredToken
from lab_agent.errors import LeaseLostError, ServiceUnavailable, SignInNeeded
from lab_agent.exchange.grants import CodeGrant, basic_header
from lab_agent.exchange.token_endpoint import TokenEndpoint
from lab_agent.http import HttpClient
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.settings.exchange import OAuthSettings

_QUESTIONS = 3
"""A renewal asks the token endpoint at most this often: a refresh, the same again where its reply was lost, and a sign-in."""
_MARGIN = 10.0
_LOOK_AGAIN = 0.1
_PAUSE = timedelta(seconds=5)
_BARRED = timedelta(seconds=60)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Credential:
    """The Authorization header of one generation of tokens (0 where there are none)."""

    header: str
    generation: int


@dataclass(frozen=True, slots=True)
class _Held:
    token: StoredToken
    since: datetime

    def expired(self, now: datetime) -> bool:
        return self.token.expires_at is not None and now >= self.token.expires_at

    def ageing(self, now: datetime, ahead: timedelta) -> bool:
        """Whether it is time to refresh: `ahead` of the end, but never in the first half of the time that was left."""
        end = self.token.expires_at
        return end is not None and now >= end - min(ahead, (end - self.since) / 2)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A refusal that is remembered: the same credentials are not offered again and again, which would lock the account."""

    generation: int
    until: datetime | None
    reason: str


class Authenticator:
    """Gives the Authorization header (interface: Authentication). Calls may raise `SignInNeeded` and `ServiceUnavailable`."""

    def __init__(self, settings: OAuthSettings, http: HttpClient, store: Store, clock: Clock, owner: str) -> None:
        self._oauth = settings
        self._endpoint = TokenEndpoint(settings, http, clock)
        self._store = store
        self.clock = clock
        self._owner = owner
        self._held: _Held | None = None
        self._unsaved: StoredToken | None = None
        self._renewal: asyncio.Task[StoredToken] | None = None
        self._bar: _Bar | None = None
        self._no_refresh_before: datetime | None = None

    async def credential(self) -> Credential:
        """Give the header to send, refreshed ahead of time where its end is known."""
        if self._oauth.grant == "basic":
            return Credential(basic_header(self._oauth), 0)
        held = self._held or await self._read()
        if held is None:
            return _credential(await self._newer_than(0))
        now = self.clock.now()
        if held.expired(now):
            return _credential(await self._newer_than(held.token.generation))
        if held.ageing(now, timedelta(seconds=self._oauth.refresh_ahead)) and not self._pausing(now):
            return _credential(await self._early(held.token))
        return _credential(held.token)

    async def renewed(self, refused: Credential) -> Credential:
        """Give a newer header than the one that was refused with 401. Raises `SignInNeeded` where there is none to be had."""
        if self._oauth.grant == "basic":
            raise SignInNeeded("the service refuses our login and password; mend [exchange.oauth]")
        return _credential(await self._newer_than(refused.generation))

    async def redeem(self, grant: CodeGrant) -> None:
        """Finish a human's sign-in: exchange the code, and store the tokens as the newest generation."""
        token = await self._endpoint.redeem(grant, generation=await self._generation() + 1)
        await self._keep(token)
        self._bar = None

    async def aclose(self) -> None:
        """Wait for a refresh that is under way; it must not be lost."""
        if self._renewal is not None:
            await asyncio.wait({self._renewal})

    async def _early(self, token: StoredToken) -> StoredToken:
        """Refresh ahead of time; as long as the token is good, a failure is no reason not to work."""
        try:
            return await self._newer_than(token.generation)
        except (ServiceUnavailable, SignInNeeded):
            self._no_refresh_before = self.clock.now() + _PAUSE
            return token

    def _pausing(self, now: datetime) -> bool:
        return self._no_refresh_before is not None and now < self._no_refresh_before

    async def _newer_than(self, generation: int) -> StoredToken:
        while True:
            if self._renewal is None:
                self._renewal = asyncio.create_task(self._renew(generation), name="token renewal")
                self._renewal.add_done_callback(self._renewal_ended)
            token = await asyncio.shield(self._renewal)
            if token.generation > generation:
                return token

    def _renewal_ended(self, task: asyncio.Task[StoredToken]) -> None:
        self._renewal = None
        if not task.cancelled():
            task.exception()

    async def _renew(self, generation: int) -> StoredToken:
        if self._unsaved is not None:
            await self._keep(self._unsaved)
        now = asyncio.get_running_loop().time
        give_up = now() + self._endpoint.longest_call
        while now() < give_up:
            leased, held = await self._take_lease(generation)
            if held is not None and held.token.generation > generation:
                return held.token
            if leased:
                return await self._renew_under_lease(held.token if held else None)
            await asyncio.sleep(_LOOK_AGAIN)
        raise ServiceUnavailable("another process has been refreshing the sign-in for too long")

    async def _renew_under_lease(self, old: StoredToken | None) -> StoredToken:
        try:
            return await self._keep(await self._ask(old))
        finally:
            await self._store.run(self._drop_lease)

    async def _ask(self, old: StoredToken | None) -> StoredToken:
        generation = old.generation if old else 0
        self._check_bar(generation)
        try:
            if old is not None and old.refresh_token:
                return await self._refresh(old)
            return await self._endpoint.sign_in(generation=generation + 1)
        except SignInNeeded as exc:
            human = self._oauth.grant == "authorization_code"
            self._bar = _Bar(generation, None if human else self.clock.now() + _BARRED, str(exc))
            raise

    async def _refresh(self, old: StoredToken) -> StoredToken:
        try:
            return await self._endpoint.refresh(old, generation=old.generation + 1)
        except SignInNeeded:
            if self._oauth.grant == "authorization_code":
                raise
            return await self._endpoint.sign_in(generation=old.generation + 1)

    def _check_bar(self, generation: int) -> None:
        bar = self._bar
        if bar is None or bar.generation != generation or (bar.until is not None and self.clock.now() >= bar.until):
            self._bar = None
            return
        raise SignInNeeded(bar.reason)

    async def _keep(self, token: StoredToken) -> StoredToken:
        """Store, then use. Where that generation is there already, the stored one counts."""
        self._unsaved = token

        def put(unit: UnitOfWork) -> None:
            unit.tokens.put(token)
            unit.commit()

        try:
            await self._store.run(put)
        except LeaseLostError:
            self._unsaved = None
            held = await self._read()
            if held is None:
                raise
            return held.token
        self._unsaved = None
        self._held = _Held(token, self.clock.now())
        _log.info("signed in at the service", action="tokens.renewed", generation=token.generation)
        return token

    @property
    def _lease(self) -> float:
        return _QUESTIONS * self._endpoint.longest_call + _MARGIN

    async def _take_lease(self, generation: int) -> tuple[bool, _Held | None]:
        """Take the right to refresh unless a newer generation is there, and read the stored generation after it."""
        now, lease = self.clock.now(), timedelta(seconds=self._lease)

        def take(unit: UnitOfWork) -> tuple[bool, StoredToken | None]:
            token = unit.tokens.current()
            if token is not None and token.generation > generation:
                return False, token
            leased = unit.tokens.take_refresh_lease(self._owner, now=now, lease=lease)
            token = unit.tokens.current()
            unit.commit()
            return leased, token

        leased, token = await self._store.run(take)
        return leased, self._hold(token)

    def _drop_lease(self, unit: UnitOfWork) -> None:
        unit.tokens.drop_refresh_lease(self._owner)
        unit.commit()

    async def _read(self) -> _Held | None:
        return self._hold(await self._store.run(lambda unit: unit.tokens.current()))

    async def _generation(self) -> int:
        held = await self._read()
        return held.token.generation if held else 0

    def _hold(self, token: StoredToken | None) -> _Held | None:
        if token is None:
            return None
        if self._held is None or self._held.token != token:
            self._held = _Held(token, self.clock.now())
        return self._held


def _credential(token: StoredToken) -> Credential:
    return Credential(f"Bearer {token.access_token}", token.generation)
