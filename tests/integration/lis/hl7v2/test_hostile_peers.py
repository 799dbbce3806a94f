"""Peers that leak connections, never end their messages, or answer in a language of their own: they disturb nobody else."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path

import pytest

from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.shared.errors import LisOutcomeUnknown
from tests.fakes.hl7_lis import build_oru
from tests.harness.clock import DEADLINE
from tests.harness.hl7_wire import FS, SERVER, VT, Wire, client, dialled, framed, listening_peer, running, until

ORDER = make_order(6)
REPORT = make_report(6, ORDER)
GOOD = build_oru(REPORT, "M1")


async def is_answered(wire: Wire) -> bool:
    await wire.send(framed(GOOD))
    return b"MSA|AA|M1" in await wire.frame()


async def test_peer_that_leaks_connections_locks_out_itself_alone(tmp_path: Path) -> None:
    """Its longest idle connection goes first; another peer's stay, and the operators are told whose leak it is."""
    inbox = MemoryInbox()
    async with running(tmp_path, inbox, results={**SERVER, "max_connections": 6, "max_connections_per_host": 4}) as adapter:
        async with AsyncExitStack() as stack:
            good = await stack.enter_async_context(dialled(adapter.ports[1], "127.0.0.2"))
            assert await is_answered(good)
            leaked = []
            for _ in range(12):
                leaked.append(await stack.enter_async_context(dialled(adapter.ports[1], "127.0.0.3")))
                assert await is_answered(leaked[-1])
            assert await is_answered(good)
            assert [await wire.is_open() for wire in leaked] == [False] * 8 + [True] * 4
            for host in ("127.0.0.4", "127.0.0.5"):
                assert await is_answered(await stack.enter_async_context(dialled(adapter.ports[1], host)))
            assert await is_answered(good)
            assert [await wire.is_open() for wire in leaked[8:]] == [False, True, True, True]
        await until(lambda: bool(inbox.alerts))
        assert "127.0.0.3" in inbox.alerts["connections"]


async def test_unfinished_messages_of_many_connections_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short messages go on, the longest that does not end is dropped, and a long one that ends is taken after it."""
    monkeypatch.setattr("lab_agent.lis.hl7v2.adapter._PATIENCE_SECONDS", 0.2)  # well below `frame_timeout`
    inbox, limit = MemoryInbox(), 2_000_000
    keys = {"max_message_bytes": 1_000_000, "max_unfinished_bytes": limit, "frame_timeout": 5}
    async with running(tmp_path, inbox, **keys) as adapter, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(dialled(adapter.ports[1])) for _ in range(12)]
        for wire in wires:
            wire.writer.write(VT + GOOD.encode() + b"NTE|1||" + b"x" * 900_000)  # as much as TCP and the adapter take
        await until(lambda: adapter._budget.total > limit)
        async with dialled(adapter.ports[1]) as short:
            assert await is_answered(short)
        peak = 0

        def watch() -> bool:
            nonlocal peak
            peak = max(peak, adapter._budget.total)
            return "unfinished_input" in inbox.alerts

        await until(watch)
        assert peak <= limit + len(wires) * 65536
        for wire in wires:
            wire.writer.transport.abort()
        await until(lambda: not adapter._budget.total)  # else the long message may be the one that is dropped
        async with dialled(adapter.ports[1]) as long:
            await long.send(framed(GOOD + "NTE|1||" + "x" * 900_000 + "\r"))
            assert b"MSA|AA|M1" in await long.frame()
        await until(lambda: not adapter._budget.total)


UTF_16 = framed(GOOD.encode("utf-16-le"))


def utf_16(number: int) -> bytes:
    """A message of its own in UTF-16; equal ones that are refused are counted under one id."""
    return framed(build_oru(REPORT, f"M{number}").encode("utf-16-le"))


@pytest.mark.parametrize("answer", [UTF_16, framed("what?"), b"NAK\r\n", framed(b"\xff\xfe")])
async def test_orders_link_answers_nothing_that_cannot_be_read(tmp_path: Path, answer: bytes) -> None:
    """A peer that answers whatever it gets, in a code page of its own, gets the order once, and no answers to its answers."""
    inbox = MemoryInbox()
    keys = {"answer_timeout": 0.2, "frame_timeout": 0.1, "reconnect_wait": 60}
    async with (
        listening_peer(lambda _wire, _frame: answer) as peer,
        running(tmp_path, inbox, **keys, orders=client(peer.port)) as adapter,
    ):
        with pytest.raises(LisOutcomeUnknown):
            await adapter.submit(ORDER)
        await until(lambda: bool(inbox.rejections))
        assert peer.ids() == [ORDER.key]
    assert len(inbox.rejections) == 1
    if answer == UTF_16:
        assert "UTF-16" in next(iter(inbox.rejections.values()))


async def test_one_link_for_all_ends_an_exchange_of_unreadable_answers(tmp_path: Path) -> None:
    """Where results come in too, what cannot be read is answered, but not for ever."""
    inbox, numbers = MemoryInbox(), count()
    async with listening_peer(lambda _wire, _frame: utf_16(next(numbers))) as peer:
        keys = {"answer_timeout": 0.5, "reconnect_wait": 60, "results": None}
        async with running(tmp_path, inbox, orders=client(peer.port), **keys) as adapter:
            with pytest.raises(LisOutcomeUnknown):
                await adapter.submit(ORDER)
            await until(lambda: len(inbox.rejections) == 3)
            assert len(peer.frames) == 3  # the order, and two answers to what came back


async def test_burst_of_unreadable_messages_is_not_kept_whole(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    async with running(tmp_path, inbox) as adapter, dialled(adapter.ports[1]) as wire:
        await wire.send(b"".join(map(utf_16, range(50))))
        while await wire.frame():
            pass
        assert len(inbox.rejections) == 3


async def test_busy_connections_are_not_closed_for_a_new_one(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    async with running(tmp_path, inbox, results={**SERVER, "max_connections_per_host": 1}) as adapter:
        async with dialled(adapter.ports[1]) as busy:
            assert await is_answered(busy)
            await busy.send(VT + GOOD.encode()[:50])
            for _ in range(2):
                async with dialled(adapter.ports[1]) as another:
                    assert not await another.is_open(DEADLINE)
            await busy.send(GOOD.encode()[50:] + FS + b"\r")
            assert b"MSA|AA|M1" in await busy.frame()
        await until(lambda: "rejected" in inbox.alerts.get("connections", ""))


LISTENER = """
import asyncio, sys
from pathlib import Path
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.testing import MemoryInbox

async def main(folder):
    server = {"role": "server", "port": 0, "max_connections_per_host": 64}
    links = {"orders": server, "results": server}
    adapter = Hl7v2Adapter(Hl7v2Settings.model_validate({**links, "folder": folder, "duplicates": "msh10"}), "hl7v2")
    await adapter.start(MemoryInbox())
    print(adapter.ports[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1])

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.proof
async def test_unfinished_messages_leave_the_memory_bounded(tmp_path: Path) -> None:
    """20 unfinished messages of 40 MB each took more than a gigabyte."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LISTENER, str(tmp_path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        port = int(await asyncio.wait_for(process.stdout.readline(), DEADLINE))
        async with AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(dialled(port)) for _ in range(20)]

            async def flood(wire: Wire) -> None:
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(3):
                        await wire.send(VT)
                        for _ in range(40):
                            await wire.send(b"x" * 1_000_000)

            await asyncio.gather(*map(flood, wires))
            for wire in wires:
                wire.writer.transport.abort()
        process.stdin.close()
        peak = int(await asyncio.wait_for(process.stdout.readline(), DEADLINE)) * 1024
    finally:
        process.kill()
        await process.wait()
    assert peak < 400_000_000
