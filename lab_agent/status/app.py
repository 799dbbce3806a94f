"""The status page as an application: its rooms put together, its errors as pages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from lab_agent.errors import LabAgentError, SchemaMismatchError, StoreUnreachableError
from lab_agent.logs import get_logger
from lab_agent.status.deeds import Deeds
from lab_agent.status.gate import Gate, Refused, SignInFirst
from lab_agent.status.house import House
from lab_agent.status.looks import Looks
from lab_agent.status.match_desk import MatchDesk
from lab_agent.status.mended import Mended
from lab_agent.status.paper import Paper
from lab_agent.status.probes import Probes
from lab_agent.status.result_deeds import ResultDeeds
from lab_agent.status.sessions import Sessions
from lab_agent.status.shell import Shell
from lab_agent.status.sign_in import SignIn
from lab_agent.status.turnaround import Turnaround

log = get_logger(__name__)
STATIC = Path(__file__).parent / "static"
_SAID = {404: "There is no such page.", 405: "This page cannot be asked for in this way."}


def create_app(house: House) -> FastAPI:
    """Make the application of the parts in `house`."""
    app = FastAPI(title="Status of the lab agent", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    sessions = Sessions(house.cipher, house.accounts, timedelta(hours=house.settings.session_hours))
    gate, paper = Gate(sessions, house.clock), Paper(house)
    for room in (
        Probes(house),
        SignIn(house.accounts, sessions, gate, paper, house.clock),
        Looks(house, gate, paper),
        Deeds(house, gate),
        Mended(house, gate, paper),
        MatchDesk(house, gate, paper),
        ResultDeeds(house, gate),
        Turnaround(house, gate, paper),
    ):
        app.include_router(room.routes())
    app.mount("/static", StaticFiles(directory=STATIC))
    errors = Errors(paper)
    app.add_exception_handler(SignInFirst, errors.sign_in_first)
    app.add_exception_handler(Refused, errors.refused)
    app.add_exception_handler(HTTPException, errors.of_http)
    app.add_exception_handler(RequestValidationError, errors.not_understood)
    app.add_exception_handler(LabAgentError, errors.of_ours)
    app.add_middleware(Shell, failed=errors.unexpected)
    return app


class Errors:
    """Errors as pages: a sentence, and never a trace."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper

    async def sign_in_first(self, request: Request, _: Exception) -> Response:
        """To the sign-in page, and back here afterwards; a form is not sent again."""
        onward = request.url.path + (f"?{request.url.query}" if request.url.query else "") if request.method == "GET" else "/"
        return RedirectResponse("/sign-in" if onward == "/" else f"/sign-in?next={quote(onward, safe='')}", 303)

    async def refused(self, _: Request, exc: Exception) -> Response:
        """The visitor may not, or not like this."""
        return self._page(exc.status if isinstance(exc, Refused) else 403, str(exc))

    async def of_http(self, _: Request, exc: Exception) -> Response:
        """No such page, or no such method."""
        status = exc.status_code if isinstance(exc, HTTPException) else 500
        return self._page(status, _SAID.get(status, "This cannot be done."))

    async def not_understood(self, _request: Request, _: Exception) -> Response:
        """An address with parameters that mean nothing."""
        return self._page(400, "The address is not understood.")

    async def of_ours(self, _: Request, exc: Exception) -> Response:
        """The store is away, or it is no longer as the page showed it."""
        if isinstance(exc, StoreUnreachableError | SchemaMismatchError):
            log.error("page without store", action="page_failed", reason=str(exc))
            return self._page(503, "The agent's own database does not answer. Nothing is lost; try again in a moment.")
        return self._page(409, f"Nothing was done: {exc}")

    def unexpected(self, _: Request) -> Response:
        """A bug of ours."""
        return self._page(500, "This page failed. The log of the agent says where; nothing else is affected.")

    def _page(self, status: int, sentence: str) -> Response:
        return self._paper.page("error.html", status=status, number=status, sentence=sentence)
