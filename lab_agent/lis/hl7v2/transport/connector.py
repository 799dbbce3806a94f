"""Opens and keeps connections: as a server it listens, as a client it reconnects; senders get a connection from it."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from lab_agent.lis.hl7v2.settings import ConnectionSettings, TlsSettings
from lab_agent.lis.hl7v2.transport.connection import ConnectionLimits, FrameHandler, MllpConnection, enable_keep_alive
from lab_agent.lis.hl7v2.transport.input_budget import InputBudget
from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.shared.errors import LabAgentError, LisUnavailable

log = structlog.get_logger(__name__)
_CLOSING_LOOP_CYCLES = 10


class MllpConnector:
    """The connections of one `ConnectionSettings`. `open` starts it; `handler` gets the incoming frames.

    `on_crowded` is told, with a text for operators, when a connection is closed or rejected because there are too many.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        limits: ConnectionLimits,
        budget: InputBudget,
        handler: FrameHandler,
        on_crowded: Callable[[str], None],
        name: str,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._budget = budget
        self._handler = handler
        self._on_crowded = on_crowded
        self._name = name
        self._connections: list[MllpConnection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._connections_changed = asyncio.Condition()
        self._is_down = False
        self._failure_reason = "no connection has been attempted yet"

    @property
    def port(self) -> int:
        """The port we listen on, or that of the LIS."""
        if self._server is not None and self._server.sockets:
            return int(self._server.sockets[0].getsockname()[1])
        return self._settings.port

    @property
    def is_connected(self) -> bool:
        """Whether there is an open connection."""
        return bool(self._connections)

    @property
    def is_client(self) -> bool:
        """Whether we are the side that connects."""
        return self._settings.role == "client"

    @property
    def is_down(self) -> bool:
        """Whether our last attempt to connect failed; never so where the LIS connects to us."""
        return self._is_down

    async def open(self) -> None:
        """Listen, or start connecting. Raises `LisUnavailable` if the port is taken or the certificates are unreadable."""
        context = _create_tls_context(self._settings)
        if self.is_client:
            for number in range(self._settings.connections):
                self._start_task(self._keep_connected(context), f"connect-{number}")
            return
        handshake = self._limits.connect if context else None
        try:
            self._server = await asyncio.start_server(
                self._accept, self._settings.host, self._settings.port, ssl=context, ssl_handshake_timeout=handshake
            )
        except OSError as exc:
            raise LisUnavailable(f"cannot listen on {self._settings.host} port {self._settings.port}: {exc.strerror}") from exc

    async def close(self) -> None:
        """Close the server, all connections and all tasks."""
        server, self._server = self._server, None
        if server is not None:
            await _stop_listening(server)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections):
            await self._drop_connection(connection)
        await _run_loop_cycles()  # transports close in the next cycles of the loop

    async def get_connection(self, timeout: float) -> MllpConnection:
        """Return a free connection, else any one; waits until there is one. Raises `LisUnavailable`."""
        try:
            async with asyncio.timeout(timeout), self._connections_changed:
                await self._connections_changed.wait_for(lambda: bool(self._connections))
        except TimeoutError:
            raise LisUnavailable(self.disconnect_reason) from None
        return next((each for each in reversed(self._connections) if each.is_free), self._connections[-1])

    @property
    def disconnect_reason(self) -> str:
        """Why there is no connection."""
        where = f"{self._settings.host} port {self._settings.port}"
        if self.is_client:
            return f"the LIS at {where} is not connected: {self._failure_reason}"
        return f"the LIS has not connected to us at {where}"

    async def check_reachable(self) -> None:
        """Check that the LIS can be reached, without a start. Raises `LisUnavailable`."""
        context = _create_tls_context(self._settings)
        if self.is_client:
            await self._drop_connection(await self._connect(context))

    async def _keep_connected(self, context: ssl.SSLContext | None) -> None:
        while True:
            try:
                connection = await self._connect(context)
            except LisUnavailable as failure:
                self._mark_down(failure)
            else:
                self._mark_up()
                await self._serve(connection)
                self._failure_reason = "the LIS closed the connection"
            await asyncio.sleep(self._limits.reconnect)

    async def _connect(self, context: ssl.SSLContext | None) -> MllpConnection:
        ours = self._settings
        name = (ours.tls.server_name or ours.host) if ours.tls else None
        try:
            async with asyncio.timeout(self._limits.connect):
                reader, writer = await asyncio.open_connection(ours.host, ours.port, ssl=context, server_hostname=name)
        except (OSError, ssl.SSLError) as exc:
            why = getattr(exc, "reason", None) or exc.strerror or type(exc).__name__
            raise LisUnavailable(f"the LIS at {ours.host} port {ours.port} cannot be reached: {why}") from exc
        return self._create_connection(reader, writer)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection of the LIS if it may connect. Called by the server, so a task of our own serves it."""
        host = str((writer.get_extra_info("peername") or ("",))[0])
        if self._server is None:
            writer.close()
            return
        if not _is_allowed(host, self._settings.allow) or not self._make_room(host):
            log.warning("connection rejected", action="hl7_connection_rejected", adapter=self._name, host=host)
            writer.close()
            return
        self._start_task(self._serve(self._create_connection(reader, writer)), "serve")

    def _make_room(self, host: str) -> bool:
        """Close an idle connection if there are too many; whether there is room for one more of `host`.

        A peer that has its share gives up one of its own; if all are taken, the peer that has most does. So one that opens
        connections and leaves them open locks itself out, and nobody else.
        """
        ours = self._settings
        counts = Counter(connection.host for connection in self._connections)
        if counts[host] >= ours.max_connections_per_host:
            return self._close_longest_idle(host, f"{host} holds {counts[host]} connections, its limit")
        if len(self._connections) < ours.max_connections:
            return True
        return any(
            self._close_longest_idle(each, f"all {ours.max_connections} connections are taken, {count} of them by {each}")
            for each, count in counts.most_common()
        )

    def _close_longest_idle(self, host: str, why: str) -> bool:
        idle = [connection for connection in self._connections if connection.host == host and connection.is_idle]
        if not idle:
            self._on_crowded(f"{why}, and none is idle: a connection was rejected. See what {host} does")
            return False
        longest = min(idle, key=lambda connection: connection.active_at)
        self._connections.remove(longest)
        self._start_task(longest.close(), "close-idle")
        log.warning("idle connection closed", action="hl7_connection_crowded_out", adapter=self._name, host=host)
        self._on_crowded(f"{why}: its longest idle one was closed. See why {host} does not close them, or raise the limit")
        return True

    async def _serve(self, connection: MllpConnection) -> None:
        try:
            async with self._connections_changed:
                self._connections_changed.notify_all()
            await connection.serve(self._handler)
        except LabAgentError as error:  # not stored: no acknowledgement, so the LIS sends it again
            log.warning("message not stored", action="hl7_message_not_stored", adapter=self._name, error=error)
        except Exception:  # a failure must end this connection only (law 9); it is logged here
            log.exception("connection failed", action="hl7_connection_broken", adapter=self._name)
        finally:
            await self._drop_connection(connection)

    async def _drop_connection(self, connection: MllpConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
        await connection.close()

    def _create_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> MllpConnection:
        enable_keep_alive(writer, self._limits.keep_alive)
        connection = MllpConnection(reader, writer, self._limits, self._budget)
        self._connections.append(connection)
        return connection

    def _start_task(self, coroutine: Coroutine[Any, Any, None], purpose: str) -> None:
        task = asyncio.create_task(coroutine, name=f"hl7:{self._name}:{purpose}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if error := retrieve_error(task):
            self._failure_reason = f"connecting failed with {type(error).__name__}"
            log.error("background task failed", action="hl7_task_ended", adapter=self._name, error=error)

    def _mark_down(self, failure: LisUnavailable) -> None:
        self._failure_reason = str(failure)
        if not self._is_down:
            self._is_down = True
            log.warning("the LIS cannot be reached", action="hl7_disconnected", adapter=self._name, error=failure)

    def _mark_up(self) -> None:
        if self._is_down:
            self._is_down = False
            log.info("connected to the LIS again", action="hl7_connected", adapter=self._name)


async def _stop_listening(server: asyncio.Server) -> None:
    """Stop accepting, then close: Python 3.11 loses the transport of a connection accepted while its server closes."""
    for one in server.sockets:
        asyncio.get_running_loop().remove_reader(one.fileno())
    await _run_loop_cycles()
    server.close()


async def _run_loop_cycles() -> None:
    for _ in range(_CLOSING_LOOP_CYCLES):
        await asyncio.sleep(0)


def _is_allowed(host: str, allow: tuple[str, ...]) -> bool:
    if not allow:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(one, strict=False) for one in allow)


def _create_tls_context(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Make the TLS context of a connection. Raises `LisUnavailable` if its files cannot be used."""
    tls = settings.tls
    if tls is None:
        return None
    try:
        return _load_tls_context(tls, is_client=settings.role == "client")
    except (OSError, ssl.SSLError) as exc:
        raise LisUnavailable(f"the TLS files cannot be used: {exc.strerror or type(exc).__name__}") from exc


def _load_tls_context(tls: TlsSettings, *, is_client: bool) -> ssl.SSLContext:
    purpose = ssl.Purpose.SERVER_AUTH if is_client else ssl.Purpose.CLIENT_AUTH
    context = ssl.create_default_context(purpose, cafile=tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not is_client and tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    return context
