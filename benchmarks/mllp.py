"""MLLP with as little as possible: a peer that acknowledges, and a sender that waits for the acknowledgement.

`python -m benchmarks.mllp` is both in a process of its own: the laboratory system for orders, and the floor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.child_process import Json, announce, cpu_seconds, serve_commands

_BEGIN, _END = b"\x0b", b"\x1c\r"
_CONTROL_ID_FIELD = 9


def wrap(segments: Sequence[str]) -> bytes:
    """A message in its frame."""
    return _BEGIN + "\r".join((*segments, "")).encode() + _END


async def acknowledge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept each message: AA with its control id and nothing else."""
    try:
        while message := await reader.readuntil(_END):
            control_id = message[: message.index(b"\r")].split(b"|")[_CONTROL_ID_FIELD].decode()
            header = f"MSH|^~\\&|LIS||LAB-AGENT||20260303100000||ACK|A{control_id}|P|2.5.1"
            writer.write(wrap((header, f"MSA|AA|{control_id}")))
    except asyncio.IncompleteReadError:
        writer.close()


async def send(port: int, messages: Sequence[bytes]) -> float:
    """Send messages one after the other on one connection; the seconds it took. Raises `RuntimeError` if one is not accepted."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    started = loop.time()
    for message in messages:
        writer.write(message)
        answer = await reader.readuntil(_END)
        if b"\rMSA|AA|" not in answer:
            raise RuntimeError(f"a message was answered with {answer.decode(errors='replace')}")
    elapsed = loop.time() - started
    writer.close()
    await writer.wait_closed()
    return elapsed


async def _run() -> None:
    async def run_command(command: Json) -> Json:
        before = cpu_seconds()
        if "send" in command:
            await send(command["port"], [each.encode() for each in command["send"]])
        return {"cpu": cpu_seconds() - before, "total": cpu_seconds()}

    server = await asyncio.start_server(acknowledge, "127.0.0.1", 0, limit=2**20)
    announce({"port": server.sockets[0].getsockname()[1]})
    await serve_commands(run_command)


if __name__ == "__main__":
    asyncio.run(_run())
