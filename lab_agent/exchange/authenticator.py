"""Our sign-in at the service: one refresh at a time across all processes, and no token used before it is stored.

Between processes the store's refresh lease decides who asks; it outlasts the call. Within a process one task asks for all
callers and is shielded from their cancellation: a refresh dropped half-way may have used up the refresh token.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from lab_agent.exchange.token_client import CodeGrant, TokenClient, basic_authorization
from lab_agent.queue.retry import Backoff, backoff_delay
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import (
    AuthenticationRequired,
    LabAgentError,
    LeaseLostError,
    ServiceUnavailable,
    SignInFailed,
    TemporaryFailure,
)
from lab_agent.shared.http_client import HttpClient
from lab_agent.store.credential_records import StoredToken
from lab_agent.store.unit_of_work import Store, UnitOfWork

_MAX_TOKEN_REQUESTS = 3
"""A renewal asks the token endpoint at most this often: a refresh, a repeat if its reply was lost, and a sign-in."""
_LEASE_MARGIN = 10.0
_LEASE_POLL_SECONDS = 0.1
_REFRESH_RETRY_DELAY = timedelta(seconds=5)
_LOGIN_RETRY_DELAY = timedelta(seconds=60)
_UNAVAILABLE_BACKOFF = Backoff(first=1.0, longest=15.0)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Credential:
    """The Authorization header of one generation of tokens (0 if the grant has no tokens)."""

    header: str
    generation: int


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: StoredToken
    cached_at: datetime

    def is_over(self, now: datetime) -> bool:
        """Whether it has expired, or could never be sent: then another one is asked for."""
        return not self.token.is_sendable or (self.token.expires_at is not None and now >= self.token.expires_at)

    def is_due_for_refresh(self, now: datetime, ahead: timedelta) -> bool:
        """Whether to refresh now: `ahead` of the expiry, but never in the first half of the time that was left."""
        end = self.token.expires_at
        return end is not None and now >= end - min(ahead, (end - self.cached_at) / 2)


@dataclass(frozen=True, slots=True)
class _LoginBackoff:
    """A remembered rejection: trying the same credentials again and again would lock the account."""

    generation: int
    until: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Unavailable:
    """The token endpoint failed so many times in a row; it is not asked again before `until`."""

    failures: int
    since: datetime
    until: datetime
    reason: str
    asked_for: bool


class Authenticator:
    """Supplies the Authorization header (interface: Authentication).

    Calls may raise `AuthenticationRequired` and `ServiceUnavailable`.
    """

    def __init__(self, settings: OAuthSettings, http: HttpClient, store: Store, clock: Clock, owner: str) -> None:
        self._oauth = settings
        self._token_client = TokenClient(settings, http, clock)
        self._store = store
        self.clock = clock
        self._owner = owner
        self._cached: _CachedToken | None = None
        self._unsaved: StoredToken | None = None
        self._renewal: asyncio.Task[StoredToken] | None = None
        self._backoff: _LoginBackoff | None = None
        self._unavailable: _Unavailable | None = None
        self._no_refresh_before: datetime | None = None

    async def credential(self) -> Credential:
        """Return the header to send, refreshed ahead of its expiry if that is known."""
        if self._oauth.grant == "basic":
            return Credential(basic_authorization(self._oauth), 0)
        cached = self._cached or await self._load()
        if cached is None:
            return _bearer_credential(await self._get_newer_than(0))
        now = self.clock.now()
        if cached.is_over(now):
            return _bearer_credential(await self._get_newer_than(cached.token.generation))
        if cached.is_due_for_refresh(now, timedelta(seconds=self._oauth.refresh_ahead)) and not self._is_refresh_delayed(now):
            return _bearer_credential(await self._refresh_early(cached.token))
        return _bearer_credential(cached.token)

    async def renew_credential(self, rejected: Credential) -> Credential:
        """Return a newer header than the one rejected with 401. Raises `AuthenticationRequired` if none can be had."""
        if self._oauth.grant == "basic":
            raise AuthenticationRequired("the service rejects our login and password; correct [exchange.oauth]")
        return _bearer_credential(await self._get_newer_than(rejected.generation))

    async def refresh(self) -> None:
        """Get a newer token than the present one, now. Raises `AuthenticationRequired` if none can be had."""
        await self.renew_credential(await self.credential())

    async def forget(self) -> None:
        """Delete all tokens: where a person signs in, nothing is sent until one does again."""

        def write(uow: UnitOfWork) -> None:
            uow.oauth_tokens.forget()

        await self._store.transact(write)
        self._cached = self._unsaved = None

    async def exchange_code(self, grant: CodeGrant) -> None:
        """Finish a sign-in by a person: exchange the code, and store the tokens as the newest generation."""
        token = await self._token_client.exchange_code(grant, generation=await self._stored_generation() + 1)
        await self._save(token)
        self._backoff = None

    async def aclose(self) -> None:
        """Wait for a refresh in progress; it must not be lost."""
        if self._renewal is not None:
            await asyncio.wait({self._renewal})

    async def _refresh_early(self, token: StoredToken) -> StoredToken:
        """Refresh ahead of expiry; while the old token is valid, a failure does not matter."""
        try:
            return await self._get_newer_than(token.generation)
        except (ServiceUnavailable, AuthenticationRequired):
            self._no_refresh_before = self.clock.now() + _REFRESH_RETRY_DELAY
            return token

    def _is_refresh_delayed(self, now: datetime) -> bool:
        return self._no_refresh_before is not None and now < self._no_refresh_before

    async def _get_newer_than(self, generation: int) -> StoredToken:
        while True:
            if self._renewal is None or self._renewal.done():  # to wait for one that is done would not let go of the loop
                self._renewal = asyncio.create_task(self._renew(generation), name="token renewal")
                self._renewal.add_done_callback(retrieve_error)
            token = await asyncio.shield(self._renewal)
            if _is_newer(token, generation):
                return token

    async def _renew(self, generation: int) -> StoredToken:
        if self._unsaved is not None:
            await self._save(self._unsaved)
        now = asyncio.get_running_loop().time
        deadline = now() + self._token_client.max_call_seconds
        while now() < deadline:
            leased, stored = await self._acquire_lease(generation)
            if stored is not None and _is_newer(stored.token, generation):
                return stored.token
            if leased:
                return await self._renew_under_lease(stored.token if stored else None)
            await asyncio.sleep(_LEASE_POLL_SECONDS)
        raise ServiceUnavailable("another process is still refreshing the sign-in")

    async def _renew_under_lease(self, old: StoredToken | None) -> StoredToken:
        try:
            return await self._save(await self._request_token(old))
        finally:
            await self._store.transact(self._release_lease)

    async def _request_token(self, old: StoredToken | None) -> StoredToken:
        generation = old.generation if old else 0
        self._check_backoff(generation)
        self._check_availability()
        try:
            token = await self._sign_in(old, generation + 1)
        except ServiceUnavailable as exc:
            self._record_unavailable(exc)
            raise
        except AuthenticationRequired as exc:
            self._unavailable = None
            by_person = self._oauth.grant == "authorization_code" and not isinstance(exc, SignInFailed)
            self._backoff = _LoginBackoff(generation, None if by_person else self.clock.now() + _LOGIN_RETRY_DELAY, str(exc))
            raise
        self._unavailable = None
        return token

    async def _sign_in(self, old: StoredToken | None, generation: int) -> StoredToken:
        """Get a token; whatever goes wrong in an unexpected way is a sign-in that failed, and no fault of what needs it."""
        try:
            return await self._refresh_or_log_in(old, generation)
        except TemporaryFailure:
            raise
        except LabAgentError as exc:
            raise SignInFailed(f"the sign-in failed: {exc}") from exc
        except Exception as exc:
            _log.exception("sign-in failed", action="tokens.failed")
            raise SignInFailed(f"the sign-in failed with an error that nobody expects ({type(exc).__name__})") from exc

    async def _refresh_or_log_in(self, old: StoredToken | None, generation: int) -> StoredToken:
        if old is None or not old.refresh_token:
            return await self._token_client.log_in(generation=generation)
        try:
            return await self._token_client.refresh(old, generation=generation)
        except AuthenticationRequired:
            if self._oauth.grant == "authorization_code":
                raise
            return await self._token_client.log_in(generation=generation)

    def _check_backoff(self, generation: int) -> None:
        backoff = self._backoff
        expired = backoff is not None and backoff.until is not None and self.clock.now() >= backoff.until
        if backoff is None or backoff.generation != generation or expired:
            self._backoff = None
            return
        raise AuthenticationRequired(backoff.reason)

    def _check_availability(self) -> None:
        """Every call that needs a token would ask an endpoint that is away: the wait grows for all of them together.

        What failed tries again in its own time: a wait is passed on only where the endpoint itself asked for one.
        """
        found, now = self._unavailable, self.clock.now()
        if found is not None and found.since <= now < found.until:
            rest = (found.until - now).total_seconds()
            raise ServiceUnavailable(found.reason, retry_after=rest if found.asked_for else None)

    def _record_unavailable(self, failure: ServiceUnavailable) -> None:
        failures, now = 1 + (self._unavailable.failures if self._unavailable else 0), self.clock.now()
        wait = max(backoff_delay(failures, _UNAVAILABLE_BACKOFF, 1.0), failure.retry_after or 0.0)
        until = now + timedelta(seconds=wait)
        self._unavailable = _Unavailable(failures, now, until, str(failure), asked_for=bool(failure.retry_after))

    async def _save(self, token: StoredToken) -> StoredToken:
        """Store the token, then use it. If that generation is stored already, the stored one counts."""
        self._unsaved = token

        def put(unit: UnitOfWork) -> None:
            unit.oauth_tokens.add(token)

        try:
            await self._store.transact(put)
        except LeaseLostError:
            self._unsaved = None
            stored = await self._load()
            if stored is None:
                raise
            return stored.token
        self._unsaved = None
        self._cached = _CachedToken(token, self.clock.now())
        _log.info("signed in at the exchange service", action="tokens.renewed", generation=token.generation)
        return token

    @property
    def _lease_seconds(self) -> float:
        return _MAX_TOKEN_REQUESTS * self._token_client.max_call_seconds + _LEASE_MARGIN

    async def _acquire_lease(self, generation: int) -> tuple[bool, _CachedToken | None]:
        """Take the refresh lease unless a newer generation is stored; read the stored token after that."""
        now, lease = self.clock.now(), timedelta(seconds=self._lease_seconds)

        def take(unit: UnitOfWork) -> tuple[bool, StoredToken | None]:
            token = unit.oauth_tokens.current()
            if token is not None and _is_newer(token, generation):
                return False, token
            leased = unit.oauth_tokens.acquire_refresh_lease(self._owner, now=now, lease=lease)
            token = unit.oauth_tokens.current()
            return leased, token

        leased, token = await self._store.transact(take)
        return leased, self._cache(token)

    def _release_lease(self, unit: UnitOfWork) -> None:
        unit.oauth_tokens.release_refresh_lease(self._owner)

    async def _load(self) -> _CachedToken | None:
        return self._cache(await self._store.transact(lambda unit: unit.oauth_tokens.current()))

    async def _stored_generation(self) -> int:
        stored = await self._load()
        return stored.token.generation if stored else 0

    def _cache(self, token: StoredToken | None) -> _CachedToken | None:
        if token is None:
            return None
        if self._cached is None or self._cached.token != token:
            self._cached = _CachedToken(token, self.clock.now())
        return self._cached


def _is_newer(token: StoredToken, generation: int) -> bool:
    """Whether a token can take the place of one of this generation."""
    return token.generation > generation and token.is_sendable


def _bearer_credential(token: StoredToken) -> Credential:
    return Credential(f"Bearer {token.access_token}", token.generation)
