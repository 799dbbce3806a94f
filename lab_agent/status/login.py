"""Signing in and out. A wrong name and a wrong password look the same and take the same time.

Slows down whoever guesses passwords: after a few failures each further one doubles the wait.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.accounts import Account, Accounts, Role
from lab_agent.logs import get_logger
from lab_agent.ports.clock import Clock
from lab_agent.status.auth import SESSION_COOKIE, AccessControl, Sessions, one_line, read_form, require_same_origin
from lab_agent.status.context import TemplateRenderer

log = get_logger(__name__)

MAX_WAIT = timedelta(seconds=60)
_RESET_AFTER = timedelta(minutes=15)
_MAX_KEYS = 2_000


class LoginThrottle:
    """Counts failures by key, in memory. `free` of them cost nothing; a quarter of an hour without one forgets them all."""

    def __init__(self, free_attempts: int) -> None:
        self._free_attempts = free_attempts
        self._failures: dict[str, tuple[int, datetime]] = {}

    def remaining_wait(self, key: str, now: datetime) -> timedelta:
        """How long `key` has to wait before it may try; zero if it may now."""
        count, last = self._recent_failures(key, now)
        if count < self._free_attempts:
            return timedelta()
        pause = min(MAX_WAIT, timedelta(seconds=2.0 ** min(count - self._free_attempts, 10)))
        return max(last + pause - now, timedelta())

    def record_failure(self, key: str, now: datetime) -> None:
        """Count a failure. Of very many keys the oldest are forgotten, so that guessing fills no memory."""
        count, _ = self._recent_failures(key, now)
        self._failures.pop(key, None)
        self._failures[key] = (count + 1, now)
        while len(self._failures) > _MAX_KEYS:
            del self._failures[next(iter(self._failures))]

    def reset(self, key: str) -> None:
        """Forget the failures of `key`, since it succeeded."""
        self._failures.pop(key, None)

    def _recent_failures(self, key: str, now: datetime) -> tuple[int, datetime]:
        count, last = self._failures.get(key, (0, now))
        return (0, now) if now - last > _RESET_AFTER else (count, last)


_WRONG_CREDENTIALS = "The name or the password is not right."
_MAX_PARALLEL_CHECKS = 2
"""Passwords checked at once: each takes 64 MiB, and nobody may take all of this machine."""


class LoginPages:
    """The sign-in page, and the way out."""

    def __init__(
        self, accounts: Accounts, sessions: Sessions, access: AccessControl, renderer: TemplateRenderer, clock: Clock
    ) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._access = access
        self._renderer = renderer
        self._clock = clock
        self._name_throttle = LoginThrottle(free_attempts=3)
        self._address_throttle = LoginThrottle(free_attempts=20)
        self._check_slots = asyncio.Semaphore(_MAX_PARALLEL_CHECKS)

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/sign-in", self.show_form, methods=["GET"])
        router.add_api_route("/sign-in", self.sign_in, methods=["POST"])
        router.add_api_route("/sign-out", self.sign_out, methods=["POST"])
        return router

    async def show_form(self, request: Request) -> Response:
        """The form."""
        return self._renderer.render("sign_in.html", next=local_path(request.query_params.get("next", "/")), trouble=None)

    async def sign_in(self, request: Request) -> Response:
        """Check name and password; on success the cookie is set and the page that was asked for comes next."""
        require_same_origin(request)
        form = await read_form(request)
        name, onward = one_line(form.get("name", "")).lower()[:64], local_path(form.get("next", "/"))
        address = request.client.host if request.client else "unknown"
        now = self._clock.now()
        if (
            pause := max(self._name_throttle.remaining_wait(name, now), self._address_throttle.remaining_wait(address, now))
        ) > timedelta():
            return self._too_many_attempts(onward, pause)
        async with self._check_slots:
            account = await self._accounts.verify(name, form.get("password", ""))
        if account is None:
            return self._reject(name, address, onward, now)
        self._name_throttle.reset(name)
        return self._start_session(request, account, onward)

    async def sign_out(self, request: Request) -> Response:
        """End the session, also for whoever else holds its cookie."""
        visitor, _ = await self._access.authorize_action(request, Role.VIEWER)
        self._sessions.end(visitor.session, self._clock.now())
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(SESSION_COOKIE)
        return response

    def _start_session(self, request: Request, account: Account, next_path: str) -> Response:
        log.info("signed in", action="signed_in", by=account.name)
        response = RedirectResponse(next_path, 303)
        response.set_cookie(
            SESSION_COOKIE,
            self._sessions.start(account, self._clock.now()),
            max_age=int(self._sessions.lifetime.total_seconds()),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _reject(self, name: str, address: str, next_path: str, now: datetime) -> Response:
        """The name is not logged: people type passwords into the wrong field."""
        self._name_throttle.record_failure(name, now)
        self._address_throttle.record_failure(address, now)
        log.warning("sign-in refused", action="sign_in_refused", address=address)
        return self._renderer.render("sign_in.html", status=401, next=next_path, trouble=_WRONG_CREDENTIALS)

    def _too_many_attempts(self, next_path: str, pause: timedelta) -> Response:
        seconds = int(pause.total_seconds()) + 1
        trouble = f"Too many attempts. Try again in {seconds} s."
        response = self._renderer.render("sign_in.html", status=429, next=next_path, trouble=trouble)
        response.headers["Retry-After"] = str(seconds)
        return response


def local_path(path: str) -> str:
    """Give the path if it leads to a page of ours, else the overview: nobody is sent elsewhere after signing in."""
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if plain and not path.startswith("/sign-") else "/"
