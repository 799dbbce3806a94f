"""The hl7v2 adapter on the wire: a running adapter, a peer of plain sockets, and waiting without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.laboratory_system import Inbox
from lab_agent.lis.testing import MemoryInbox
from tests.harness.clock import DEADLINE, wait_until

VT, FS, CR = b"\x0b", b"\x1c", b"\r"


def framed(text: str | bytes) -> bytes:
    """A message in its frame."""
    return VT + (text.encode() if isinstance(text, str) else text) + FS + CR


SERVER = {"role": "server", "port": 0}


def client(port: int) -> dict[str, object]:
    """A link on which the adapter calls."""
    return {"role": "client", "port": port}


def make_adapter(folder: Path, **keys: object) -> Hl7v2Adapter:
    """An adapter that neither waits long nor reconnects late; by itself it listens on both links."""
    fast = {"answer_timeout": 30, "connect_timeout": 3, "reconnect_wait": 0.02}
    given = {"orders": SERVER, "results": SERVER, "folder": folder / "own", "duplicates": "msh10", **fast, **keys}
    return Hl7v2Adapter(Hl7v2Settings.model_validate(given), "hl7v2")


@asynccontextmanager
async def running(folder: Path, inbox: Inbox | None = None, **keys: object) -> AsyncIterator[Hl7v2Adapter]:
    """A started adapter behind the guard's inbox."""
    adapter = make_adapter(folder, **keys)
    await adapter.start(GuardedInbox(inbox if inbox is not None else MemoryInbox(), "hl7v2"))
    try:
        yield adapter
    finally:
        await adapter.stop()


async def until(reached: Callable[[], object]) -> None:
    await wait_until(lambda: bool(reached()), interval=0.005)


@dataclass
class Wire:
    """Our end of one connection: raw bytes out, frames in."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send bytes as they stand."""
        self.writer.write(data)
        await self.writer.drain()

    async def frame(self, timeout: float = DEADLINE) -> bytes:
        """The next frame's content; empty at the end of the stream."""
        try:
            async with asyncio.timeout(timeout):
                whole = await self.reader.readuntil(FS + CR)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        return whole.removeprefix(VT).removesuffix(FS + CR)

    async def is_open(self, seconds: float = 0.05) -> bool:
        """Whether the other side has left it open for so long."""
        try:
            async with asyncio.timeout(seconds):
                return bool(await self.reader.read(1))
        except TimeoutError:
            return True
        except ConnectionError:
            return False

    async def close(self) -> None:
        """Close it."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def dialled(port: int, local_host: str = "127.0.0.1") -> AsyncIterator[Wire]:
    """A connection to a port; `local_host`: where it comes from (127.0.0.2 is another peer)."""
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port, local_addr=(local_host, 0)))
    try:
        yield wire
    finally:
        await wire.close()


@dataclass
class Peer:
    """A LIS that listens and does nothing by itself: `connections` in order of arrival, `frames` of all of them."""

    on_frame: Callable[[Wire, bytes], bytes | None]
    """Gives the bytes to answer with."""
    connections: list[Wire] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    port: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def ids(self) -> list[str]:
        """MSH-10 of every message received."""
        return [frame.split(b"\r")[0].split(b"|")[9].decode() for frame in self.frames]

    async def serve(self, wire: Wire) -> None:
        """Read frames until the connection ends."""
        while frame := await wire.frame(timeout=600):
            self.frames.append(frame)
            if answer := self.on_frame(wire, frame):
                with suppress(ConnectionError):
                    await wire.send(answer)


@asynccontextmanager
async def listening_peer(on_frame: Callable[[Wire, bytes], bytes | None] = lambda *_: None) -> AsyncIterator[Peer]:
    """A `Peer` on a free port."""
    peer = Peer(on_frame)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        peer.connections.append(wire)
        peer.tasks.add(asyncio.get_running_loop().create_task(peer.serve(wire)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    peer.port = int(server.sockets[0].getsockname()[1])
    try:
        yield peer
    finally:
        server.close()
        for task in peer.tasks:
            task.cancel()
        await asyncio.gather(*peer.tasks, return_exceptions=True)
        for wire in peer.connections:
            await wire.close()


def build_ack(control_id: str, code: str = "AA", *lines: str, number: int = 1, error: str = "") -> bytes:
    """An acknowledgement of a message, in its frame; ORC for each of `lines`."""
    orcs = "".join(f"ORC|OK|{line}|F{line[-6:]}\r" for line in lines)
    err = f"ERR|||{error}|E\r" if error else ""
    return framed(f"MSH|^~\\&|LIS||LAB-AGENT||20240517083000||ORL^O22|Z{number}|P|2.5.1\rMSA|{code}|{control_id}\r{err}{orcs}")
