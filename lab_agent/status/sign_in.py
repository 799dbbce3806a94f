"""Signing in and out. A wrong name and a wrong password look the same and take the same time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.accounts import Account, Accounts, Role
from lab_agent.logs import get_logger
from lab_agent.ports.clock import Clock
from lab_agent.status.gate import Gate, one_line, read_form, same_origin
from lab_agent.status.paper import Paper
from lab_agent.status.sessions import COOKIE, Sessions
from lab_agent.status.throttle import Throttle

log = get_logger(__name__)

_WRONG = "The name or the password is not right."
_SIDE_BY_SIDE = 2
"""Passwords checked at once: each takes 64 MiB, and nobody may take all of this machine."""


class SignIn:
    """The sign-in page, and the way out."""

    def __init__(self, accounts: Accounts, sessions: Sessions, gate: Gate, paper: Paper, clock: Clock) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._gate = gate
        self._paper = paper
        self._clock = clock
        self._names = Throttle(free=3)
        self._addresses = Throttle(free=20)
        self._places = asyncio.Semaphore(_SIDE_BY_SIDE)

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/sign-in", self.show, methods=["GET"])
        router.add_api_route("/sign-in", self.sign_in, methods=["POST"])
        router.add_api_route("/sign-out", self.sign_out, methods=["POST"])
        return router

    async def show(self, request: Request) -> Response:
        """The form."""
        return self._paper.page("sign_in.html", next=local_path(request.query_params.get("next", "/")), trouble=None)

    async def sign_in(self, request: Request) -> Response:
        """Check name and password; on success the cookie is set and the page that was asked for comes next."""
        same_origin(request)
        form = await read_form(request)
        name, onward = one_line(form.get("name", "")).lower()[:64], local_path(form.get("next", "/"))
        address = request.client.host if request.client else "unknown"
        now = self._clock.now()
        if (pause := max(self._names.wait(name, now), self._addresses.wait(address, now))) > timedelta():
            return self._slow_down(onward, pause)
        async with self._places:
            account = await self._accounts.verify(name, form.get("password", ""))
        if account is None:
            return self._failed(name, address, onward, now)
        self._names.forget(name)
        return self._welcome(request, account, onward)

    async def sign_out(self, request: Request) -> Response:
        """End the session, also for whoever else holds its cookie."""
        visitor, _ = await self._gate.acting(request, Role.VIEWER)
        self._sessions.end(visitor.session, self._clock.now())
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(COOKIE)
        return response

    def _welcome(self, request: Request, account: Account, onward: str) -> Response:
        log.info("signed in", action="signed_in", by=account.name)
        response = RedirectResponse(onward, 303)
        response.set_cookie(
            COOKIE,
            self._sessions.begin(account, self._clock.now()),
            max_age=int(self._sessions.lasting.total_seconds()),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _failed(self, name: str, address: str, onward: str, now: datetime) -> Response:
        """The name is not logged: people type passwords into the wrong field."""
        self._names.failed(name, now)
        self._addresses.failed(address, now)
        log.warning("sign-in refused", action="sign_in_refused", address=address)
        return self._paper.page("sign_in.html", status=401, next=onward, trouble=_WRONG)

    def _slow_down(self, onward: str, pause: timedelta) -> Response:
        seconds = int(pause.total_seconds()) + 1
        trouble = f"Too many attempts. Try again in {seconds} s."
        response = self._paper.page("sign_in.html", status=429, next=onward, trouble=trouble)
        response.headers["Retry-After"] = str(seconds)
        return response


def local_path(path: str) -> str:
    """Give the path if it leads to a page of ours, else the overview: nobody is sent elsewhere after signing in."""
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if plain and not path.startswith("/sign-") else "/"
