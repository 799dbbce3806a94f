"""One endpoint: we listen, or we keep connections open. Either way it has links, and whoever wants to send asks for one."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from lab_agent.errors import LabAgentError, LisUnavailable
from lab_agent.lis.hl7v2.link import Handler, Link, keep_alive
from lab_agent.lis.hl7v2.settings import LinkSettings, TlsSettings

log = structlog.get_logger(__name__)
_MOST = 64
_LAST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds and bytes that the links of an adapter share."""

    connect: float
    frame: float
    reconnect: float
    keep_alive: int
    limit: int


class Endpoint:
    """The links of one `LinkSettings`. `open` starts it; `handler` gets what comes in."""

    def __init__(self, settings: LinkSettings, patience: Patience, handler: Handler, name: str) -> None:
        self._settings = settings
        self._patience = patience
        self._handler = handler
        self._name = name
        self._links: list[Link] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()
        self._down = False
        self._why = "it has not connected yet"

    @property
    def port(self) -> int:
        """The port that we listen on, or that of the LIS."""
        if self._server is not None and self._server.sockets:
            return int(self._server.sockets[0].getsockname()[1])
        return self._settings.port

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return bool(self._links)

    @property
    def caller(self) -> bool:
        """Whether it is us who connect."""
        return self._settings.role == "client"

    async def open(self) -> None:
        """Listen, or begin to connect. Raises `LisUnavailable` where the port cannot be had, or the certificates not be read."""
        context = _context(self._settings)
        if self.caller:
            for number in range(self._settings.connections):
                self._watch(self._keep_connected(context), f"connect-{number}")
            return
        try:
            self._server = await asyncio.start_server(self._taken, self._settings.host, self._settings.port, ssl=context)
        except OSError as exc:
            raise LisUnavailable(f"cannot listen on {self._settings.host} port {self._settings.port}: {exc.strerror}") from exc

    async def close(self) -> None:
        """End all of it."""
        server, self._server = self._server, None
        if server is not None:
            await _stop_listening(server)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in list(self._links):
            await self._forget(link)
        await _rounds()  # transports end in the next rounds of the loop

    async def link(self, wait: float) -> Link:
        """Give a link that is free, or else any one; waits until there is one. Raises `LisUnavailable`."""
        try:
            async with asyncio.timeout(wait), self._changed:
                await self._changed.wait_for(lambda: bool(self._links))
        except TimeoutError:
            raise LisUnavailable(self.reason) from None
        return next((link for link in reversed(self._links) if link.free), self._links[-1])

    @property
    def reason(self) -> str:
        """Say why there is no connection."""
        where = f"{self._settings.host} port {self._settings.port}"
        if self.caller:
            return f"the LIS at {where} is not connected: {self._why}"
        return f"the LIS has not connected to us at {where}"

    async def probe(self) -> None:
        """Look whether the LIS can be reached, without a start. Raises `LisUnavailable`."""
        context = _context(self._settings)
        if self.caller:
            link = await self._connect(context)
            await self._forget(link)

    async def _keep_connected(self, context: ssl.SSLContext | None) -> None:
        while True:
            try:
                link = await self._connect(context)
            except LisUnavailable as failure:
                self._note_down(failure)
            else:
                self._note_up()
                await self._served(link)
                self._why = "the LIS closed the connection"
            await asyncio.sleep(self._patience.reconnect)

    async def _connect(self, context: ssl.SSLContext | None) -> Link:
        ours = self._settings
        name = (ours.tls.server_name or ours.host) if ours.tls else None
        try:
            async with asyncio.timeout(self._patience.connect):
                reader, writer = await asyncio.open_connection(ours.host, ours.port, ssl=context, server_hostname=name)
        except (OSError, ssl.SSLError) as exc:
            why = getattr(exc, "reason", None) or exc.strerror or type(exc).__name__
            raise LisUnavailable(f"the LIS at {ours.host} port {ours.port} cannot be reached: {why}") from exc
        return self._made(reader, writer)

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection of the LIS, if it is one that may connect. Called by the server, so a task of our own serves it."""
        host = str((writer.get_extra_info("peername") or ("",))[0])
        if self._server is None:
            writer.close()
            return
        if len(self._links) >= _MOST or not _allowed(host, self._settings.allow):
            log.warning("connection refused", action="hl7_connection_refused", adapter=self._name, host=host)
            writer.close()
            return
        self._watch(self._served(self._made(reader, writer)), "serve")

    async def _served(self, link: Link) -> None:
        try:
            async with self._changed:
                self._changed.notify_all()
            await link.serve(self._handler)
        except LabAgentError as error:  # the inbox cannot take it now: no answer, and the LIS gives it again
            log.warning("message not kept", action="hl7_message_not_taken", adapter=self._name, error=error)
        except Exception:  # what one message sets off must end its connection only (law 9); it is told of here
            log.exception("connection broken off", action="hl7_connection_broken", adapter=self._name)
        finally:
            await self._forget(link)

    async def _forget(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
        await link.close()

    def _made(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Link:
        keep_alive(writer, self._patience.keep_alive)
        link = Link(reader, writer, limit=self._patience.limit, patience=self._patience.frame)
        self._links.append(link)
        return link

    def _watch(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.create_task(work, name=f"hl7:{self._name}:{what}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._why = f"connecting broke off with {type(error).__name__}"
            log.error("side task ended", action="hl7_task_ended", adapter=self._name, error=error)

    def _note_down(self, failure: LisUnavailable) -> None:
        self._why = str(failure)
        if not self._down:
            self._down = True
            log.warning("the LIS cannot be reached", action="hl7_disconnected", adapter=self._name, error=failure)

    def _note_up(self) -> None:
        if self._down:
            self._down = False
            log.info("the LIS is reached again", action="hl7_connected", adapter=self._name)


async def _stop_listening(server: asyncio.Server) -> None:
    """Take no more connections, then close: Python 3.11 loses the transport of one that is taken while its server closes."""
    for one in server.sockets:
        asyncio.get_running_loop().remove_reader(one.fileno())
    await _rounds()
    server.close()


async def _rounds() -> None:
    for _ in range(_LAST_ROUNDS):
        await asyncio.sleep(0)


def _allowed(host: str, allow: tuple[str, ...]) -> bool:
    if not allow:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(one, strict=False) for one in allow)


def _context(settings: LinkSettings) -> ssl.SSLContext | None:
    """Make the TLS context of a link. Raises `LisUnavailable` where its files cannot be used."""
    tls = settings.tls
    if tls is None:
        return None
    try:
        return _loaded(tls, caller=settings.role == "client")
    except (OSError, ssl.SSLError) as exc:
        raise LisUnavailable(f"the TLS files cannot be used: {exc.strerror or type(exc).__name__}") from exc


def _loaded(tls: TlsSettings, *, caller: bool) -> ssl.SSLContext:
    purpose = ssl.Purpose.SERVER_AUTH if caller else ssl.Purpose.CLIENT_AUTH
    context = ssl.create_default_context(purpose, cafile=tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not caller and tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    return context
