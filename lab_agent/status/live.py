"""`/live`: tells open pages which topics have changed, and nothing of what they say; a page reads itself again.

One look a second serves all pages, and none is taken while no page is open. Only some pages of a session are told: a browser
opens six connections to a server for all of its tabs, and one more tab must still find one free. The others look by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lab_agent.shared.errors import LabAgentError
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HttpError, Viewer
from lab_agent.status.sessions import SESSION_COOKIE, Sessions
from lab_agent.status.translation import gettext
from lab_agent.store.queries import Queries

router = APIRouter()
_log = get_logger(__name__)

LOOK_EVERY = 1.0
_HEARTBEAT = 15.0
_CHECK_SESSION_EVERY = 60.0
_MAX_LISTENERS = 100
MAX_OF_SESSION = 3
_QUEUE_SIZE = 50


@dataclass(slots=True)
class ChangeFeed:
    """Looks for changes while somebody listens, and tells each listener the topics."""

    queries: Queries
    _listeners: dict[asyncio.Queue[frozenset[str] | None], str] = field(default_factory=dict, init=False)
    """Each with its session."""
    _look: asyncio.Task[None] | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def is_full(self) -> bool:
        """Whether nobody else can listen."""
        return len(self._listeners) >= _MAX_LISTENERS

    def has_enough(self, session: str) -> bool:
        """Whether no other page of this session can listen."""
        return sum(each == session for each in self._listeners.values()) >= MAX_OF_SESSION

    async def listen(self, session: str) -> AsyncIterator[frozenset[str]]:
        """Give the topics that have changed, as they change; an empty set now and then, as a sign of life."""
        mine: asyncio.Queue[frozenset[str] | None] = asyncio.Queue(maxsize=_QUEUE_SIZE)
        self._listeners[mine] = session
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._watch(), name="status page: changes")
        try:
            yield frozenset()
            while not self._is_closed:
                try:
                    changed = await asyncio.wait_for(mine.get(), _HEARTBEAT)
                except TimeoutError:
                    changed = frozenset()
                if changed is not None:
                    yield changed
        finally:
            self._listeners.pop(mine, None)

    def close(self) -> None:
        """End all listening: the server stops."""
        self._is_closed = True
        for each in self._listeners:
            if each.full():
                each.get_nowait()
            each.put_nowait(None)

    async def _watch(self) -> None:
        known = await self._stamps()
        while self._listeners and not self._is_closed:
            await asyncio.sleep(LOOK_EVERY)
            found = await self._stamps()
            if found is None:
                continue
            changed = frozenset(topic for topic, stamp in found.items() if known is not None and known.get(topic) != stamp)
            known = found
            for each in self._listeners if changed else ():
                if not each.full():  # who does not read has more than enough to read already
                    each.put_nowait(changed)

    async def _stamps(self) -> Mapping[str, str] | None:
        try:
            return await self.queries.change_stamps()
        except LabAgentError as exc:  # the pages show what is wrong with the database
            _log.debug("changes not read", action="live_failed", reason=str(exc))
            return None


@router.get("/live")
async def follow_changes(request: Request, user: Viewer) -> Response:
    """Server-sent events: `changed` with the names of topics. It ends with the session, which has a few of them (else 204)."""
    feed: ChangeFeed = request.app.state.change_feed
    if feed.has_enough(user.session.id):
        return Response(status_code=204)
    if feed.is_full:
        raise HttpError(gettext("Too many pages are open at once; this one refreshes itself more slowly."), 503)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_write_events(request, feed, user.session.id), media_type="text/event-stream", headers=headers)


async def _write_events(request: Request, feed: ChangeFeed, session: str) -> AsyncIterator[str]:
    sessions: Sessions = request.app.state.sessions
    loop = asyncio.get_running_loop()
    checked = loop.time()
    async for topics in feed.listen(session):
        if loop.time() - checked > _CHECK_SESSION_EVERY:
            checked = loop.time()
            if not sessions.has_session(request.cookies.get(SESSION_COOKIE)):
                return
        yield f"event: changed\ndata: {' '.join(sorted(topics))}\n\n" if topics else ": alive\n\n"
