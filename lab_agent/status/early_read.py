"""What a page shows is read while its user is looked up: both wait for the database at the same time.

Only for a request with the cookie of a session, and nothing of it is shown before the user is known; what was read for somebody
whose session has ended meanwhile is dropped. It begins after the request has come, so it sees what the same reader did before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.status.sessions import SESSION_COOKIE, Sessions

T = TypeVar("T")


class EarlyRead(Generic[T]):
    """A read for a request, begun at once if that has the cookie of a session; for a dependency that comes before the user."""

    def __init__(self, request: Request, read: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._read = read
        self._task: asyncio.Task[T] | None = None
        sessions: Sessions = request.app.state.sessions
        if sessions.has_session(request.cookies.get(SESSION_COOKIE)):
            self._task = asyncio.create_task(read())
            self._task.add_done_callback(retrieve_error)  # without a user, nobody asks for it

    async def result(self) -> T:
        """What was read; read now, where it was not begun. Raises what reading raises."""
        return await (self._read() if self._task is None else self._task)
