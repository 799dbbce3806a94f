"""What becomes of an order on the wire: one message or one a line, answers that come late, twice, to a part, or never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from lab_agent.lis.hl7v2 import Hl7v2Adapter
from lab_agent.lis.lab_messages import AccessionUpdate, LabRejection
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.shared.errors import LisOutcomeUnknown, LisRejected, LisUnavailable
from tests.fakes.hl7_lis import build_oru
from tests.harness.hl7_wire import Peer, Wire, build_ack, client, dialled, framed, listening_peer, running, until

ORDER = next(order for order in map(make_order, range(100)) if len(order.lines) == 3)
ONE_LINE = {"one_line_per_message": True}
LINES = [str(line.key) for line in ORDER.lines]


def silent(_wire: Wire, _frame: bytes) -> None: ...


@asynccontextmanager
async def handing_over(
    folder: Path, on_frame: Callable[[Wire, bytes], bytes | None] = silent, inbox: MemoryInbox | None = None, **keys: object
) -> AsyncIterator[tuple[Peer, Hl7v2Adapter]]:
    async with listening_peer(on_frame) as peer, running(folder, inbox, **keys, orders=client(peer.port)) as adapter:
        yield peer, adapter


def orcs(frame: bytes) -> list[str]:
    return [line.split(b"|")[2].decode() for line in frame.split(b"\r") if line.startswith(b"ORC")]


def control_id(frame: bytes) -> str:
    return frame.split(b"\r")[0].split(b"|")[9].decode()


def accept(_: Wire, frame: bytes) -> bytes:
    return build_ack(control_id(frame), "AA", *orcs(frame))


def silent_about(line: str) -> Callable[[Wire, bytes], bytes | None]:
    return lambda wire, frame: None if orcs(frame) == [line] and b"|CA|" not in frame else accept(wire, frame)


async def test_one_line_per_message_sends_each_line_with_its_own_stable_id(tmp_path: Path) -> None:
    """Every message holds one ORC, the patient, the order's key in PV1-19, and MSH-10 is the line's key."""
    async with handing_over(tmp_path, accept, **ONE_LINE) as (peer, adapter):
        receipt = await adapter.submit(ORDER)
        assert peer.ids() == LINES
        assert [orcs(frame) for frame in peer.frames] == [[line] for line in LINES]
        assert all(f"|{ORDER.key}\r".encode() in frame for frame in peer.frames)
        assert all(frame.count(b"\rPID|") == frame.count(b"\rOBR|") == 1 for frame in peer.frames)
        assert all(b"|Notify by sms: Y\rNTE|2|P|Notify by email: N\rPV1|" in frame for frame in peer.frames)
        assert all(frame.count(b"\rOBX|") == peer.frames[0].count(b"\rOBX|") for frame in peer.frames)
        assert receipt.line_accessions == {line: f"F{line[-6:]}" for line in LINES}
        assert await adapter.was_received(ORDER.key) is True
        await adapter.submit(ORDER)
        assert peer.ids() == LINES * 2


@pytest.mark.parametrize("duplicates", ["msh10", "placer", "none"])
async def test_one_line_per_message_crash_before_last_line_sends_only_that(tmp_path: Path, duplicates: str) -> None:
    """Whatever the LIS recognises, what it accepted is not sent again, and what was not sent is not forgotten."""
    keys = {**ONE_LINE, "duplicates": duplicates}

    def die_at_third(wire: Wire, frame: bytes) -> bytes | None:
        if orcs(frame) == [LINES[1]]:
            calls[0].cancel()  # the agent dies when the second answer is on its way
        return accept(wire, frame)

    calls: list[asyncio.Task[object]] = []
    async with listening_peer(die_at_third) as peer:
        async with running(tmp_path, **keys, orders=client(peer.port)) as adapter:
            calls.append(asyncio.create_task(adapter.submit(ORDER)))
            with pytest.raises(asyncio.CancelledError):
                await calls[0]
            await until(lambda: b'"accepted":true' in (tmp_path / "own" / "sent" / f"{LINES[1]}.message.json").read_bytes())
            assert await adapter.was_received(ORDER.key) is False
        peer.on_frame = accept
        sent = [orcs(frame) for frame in peer.frames]
        assert sent == [[LINES[0]], [LINES[1]]]
        async with running(tmp_path, **keys, orders=client(peer.port)) as adapter:
            assert await adapter.was_received(ORDER.key) is False
            receipt = await adapter.submit(ORDER)
            assert await adapter.was_received(ORDER.key) is True
        assert receipt.line_accessions == {line: f"F{line[-6:]}" for line in LINES}
        assert [orcs(frame)[0] for frame in peer.frames] == LINES


async def test_one_line_per_message_unanswered_line_is_sent_again_only_when_decided(tmp_path: Path) -> None:
    """A LIS that recognises no repeats: the other lines go out, and the unanswered one only once the agent was told."""
    async with handing_over(tmp_path, silent_about(LINES[1]), **ONE_LINE, duplicates="none", answer_timeout=0.5) as (
        peer,
        adapter,
    ):
        with pytest.raises(LisOutcomeUnknown):
            await adapter.submit(ORDER)
        assert await adapter.was_received(ORDER.key) is False  # the third was not sent yet
        with pytest.raises(LisOutcomeUnknown, match="1 of 3 lines"):
            await adapter.submit(ORDER)
        assert [orcs(frame)[0] for frame in peer.frames] == LINES
        assert await adapter.was_received(ORDER.key) is None
        peer.on_frame = accept
        await adapter.submit(ORDER)  # an operator has asked the laboratory
        assert [orcs(frame)[0] for frame in peer.frames] == [*LINES, LINES[1]]
        assert await adapter.was_received(ORDER.key) is True


async def test_one_line_per_message_rejected_line_does_not_stop_the_others(tmp_path: Path) -> None:
    """Neither that of an order, nor that of a withdrawal."""

    def reject_first(wire: Wire, frame: bytes) -> bytes | None:
        is_wanted = b"\rORC|CA|" in frame or not cancelling
        return build_ack(control_id(frame), "AE", error="204") if is_wanted and orcs(frame) == LINES[:1] else accept(wire, frame)

    cancelling = False
    async with handing_over(tmp_path, reject_first, **ONE_LINE) as (peer, adapter):
        with pytest.raises(LisRejected, match=f"1 of 3 lines.*{LINES[0]}: the LIS answered AE with error 204"):
            await adapter.submit(ORDER)
        assert peer.ids() == LINES
        assert await adapter.was_received(ORDER.key) is False
        cancelling = True
        await adapter.submit(ORDER)
        assert peer.ids() == [*LINES, LINES[0]]
        del peer.frames[:]
        with pytest.raises(LisRejected):
            await adapter.cancel(ORDER.key, tuple(line.key for line in ORDER.lines), "withdrawn")
        assert [orcs(frame) for frame in peer.frames] == [[line] for line in LINES]


async def test_order_begun_in_one_message_stays_so(tmp_path: Path) -> None:
    """A changed setting does not send an order of unknown outcome in other messages, which the LIS could not recognise."""
    async with listening_peer() as peer:
        async with running(tmp_path, answer_timeout=0.05, orders=client(peer.port)) as adapter:
            with pytest.raises(LisOutcomeUnknown):
                await adapter.submit(ORDER)
        peer.on_frame = accept
        async with running(tmp_path, one_line_per_message=True, orders=client(peer.port)) as adapter:
            await adapter.submit(ORDER)
            assert peer.ids() == [ORDER.key] * 2
            assert await adapter.was_received(ORDER.key) is True


async def test_cancel_goes_as_the_order_went(tmp_path: Path) -> None:
    async with handing_over(tmp_path, accept, **ONE_LINE) as (peer, adapter):
        await adapter.submit(ORDER)
        del peer.frames[:]
        await adapter.cancel(ORDER.key, tuple(line.key for line in ORDER.lines[:2]), "withdrawn")
        assert [orcs(frame) for frame in peer.frames] == [[LINES[0]], [LINES[1]]]
        del peer.frames[:]
        await adapter.submit(ORDER)  # the lines came back
        assert [orcs(frame)[0] for frame in peer.frames] == LINES[:2]
        await adapter.cancel(ORDER.key, tuple(line.key for line in ORDER.lines), "withdrawn")
        assert await adapter.was_received(ORDER.key) is None


async def test_cancel_of_a_line_leaves_the_outcome_of_another_unknown(tmp_path: Path) -> None:
    async with handing_over(tmp_path, silent_about(LINES[2]), **ONE_LINE, duplicates="none", answer_timeout=0.5) as (
        peer,
        adapter,
    ):
        await unanswered(adapter)
        await adapter.cancel(ORDER.key, (ORDER.lines[0].key,), "withdrawn")
        assert await adapter.was_received(ORDER.key) is None
        await peer.connections[0].send(build_ack(peer.ids()[2], "AA", LINES[2]) + framed(build_oru(make_report(6, ORDER), "M1")))
        await until(lambda: b"MSA|AA|M1" in peer.frames[-1])
        assert await adapter.was_received(ORDER.key) is True


@pytest.mark.parametrize(("named", "unnamed"), [(LINES[:1], LINES[1:]), (["X"], LINES), ([], []), (["X", "Y", "Z"], [])])
async def test_answer_that_names_fewer_lines_is_told(tmp_path: Path, named: list[str], unnamed: list[str]) -> None:
    """A plain ACK names none, and some systems name each by a number of their own: nothing is missing there."""

    def answer(_: Wire, frame: bytes) -> bytes:
        return build_ack(control_id(frame), "AA", *named)

    inbox = MemoryInbox()
    async with handing_over(tmp_path / "1", answer, inbox) as (peer, adapter):
        assert list((await adapter.submit(ORDER)).unnamed_lines) == unnamed
        assert await adapter.was_received(ORDER.key) is True
        await until(lambda: ("unnamed_lines" in inbox.alerts) == bool(unnamed))
        assert all(line in inbox.alerts["unnamed_lines"] for line in unnamed)
        peer.on_frame = accept
        await adapter.submit(ORDER)
        await until(lambda: not inbox.alerts)
    async with handing_over(tmp_path / "2", answer, unnamed_lines="hold") as (_, adapter):
        with pytest.raises(LisRejected, match=unnamed[0]) if unnamed else nullcontext():
            await adapter.submit(ORDER)
        assert await adapter.was_received(ORDER.key) is (None if unnamed else True)


async def unanswered(adapter: Hl7v2Adapter) -> None:
    with pytest.raises(LisOutcomeUnknown):
        await adapter.submit(ORDER)
    assert await adapter.was_received(ORDER.key) is None


async def settled(adapter: Hl7v2Adapter, inbox: MemoryInbox) -> None:
    await until(lambda: bool(inbox.contents))
    assert await adapter.was_received(ORDER.key) is True
    [numbers] = inbox.contents
    assert isinstance(numbers, AccessionUpdate)
    assert {each.line for each in numbers.accessions} == set(LINES)


@pytest.mark.parametrize("duplicates", ["msh10", "placer", "none"])
@pytest.mark.parametrize("by_results", [False, True])
async def test_late_answer_settles_on_either_link(tmp_path: Path, duplicates: str, by_results: bool) -> None:
    """An answer to another message does not count."""
    inbox, keys = MemoryInbox(), {"duplicates": duplicates, "answer_timeout": 0.05}
    async with handing_over(tmp_path, lambda *_: build_ack("ANOTHER", "AA", *LINES), inbox, **keys) as (peer, adapter):
        await unanswered(adapter)
        late = build_ack(peer.ids()[0], "AA", *LINES)
        async with dialled(adapter.ports[1]) as results:
            await (results if by_results else peer.connections[0]).send(late)
            await settled(adapter, inbox)
        assert len(peer.connections) == 1


@pytest.mark.parametrize("duplicates", ["msh10", "none"])
async def test_late_answer_after_a_restart_settles(tmp_path: Path, duplicates: str) -> None:
    """The process that sent the order is gone; the answer to it finds it all the same, and outlives the next restart."""
    keys = {"duplicates": duplicates, "answer_timeout": 0.05}
    async with listening_peer() as peer:
        async with running(tmp_path, **keys, orders=client(peer.port)) as adapter:
            await unanswered(adapter)
        inbox = MemoryInbox()
        async with running(tmp_path, inbox, **keys, orders=client(peer.port)) as adapter:
            assert await adapter.was_received(ORDER.key) is None
            await until(lambda: len(peer.connections) == 2)
            await peer.connections[1].send(build_ack(peer.ids()[0], "AA", *LINES))
            await settled(adapter, inbox)
        inbox = MemoryInbox()
        async with running(tmp_path, inbox, **keys, orders=client(peer.port)) as adapter:
            assert await adapter.was_received(ORDER.key) is True
            await settled(adapter, inbox)


@pytest.mark.parametrize(
    ("mode", "code", "error", "received"),
    [
        *(("commit", "CA", "", True), ("enhanced", "CA", "", None), ("enhanced", "CE", "", False)),
        *(("original", "AE", "205", True), ("original", "AE", "207", False), ("original", "ZZ", "", None)),
    ],
)
async def test_late_answer_means_what_a_timely_one_means(
    tmp_path: Path, mode: str, code: str, error: str, received: bool | None
) -> None:
    async with handing_over(tmp_path, acknowledgement=mode, answer_timeout=0.05) as (peer, adapter):
        await unanswered(adapter)
        result = framed(build_oru(make_report(6, ORDER), "M1"))
        await peer.connections[0].send(build_ack(peer.ids()[0], code, error=error) + build_ack("ANOTHER", "AA", *LINES) + result)
        await until(lambda: len(peer.frames) == 2)  # the result is answered, so what came before it was read
        assert await adapter.was_received(ORDER.key) is received


async def test_late_answer_rejecting_a_line_reaches_the_inbox(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    async with handing_over(tmp_path, inbox=inbox, answer_timeout=0.05) as (peer, adapter):
        await unanswered(adapter)
        late = build_ack(peer.ids()[0]).replace(b"\x1c", f"ORC|UA|{LINES[0]}||||||||||||||^not offered\r\x1c".encode())
        await peer.connections[0].send(late)
        await until(lambda: bool(inbox.contents))
    [rejection] = inbox.contents
    assert isinstance(rejection, LabRejection)
    assert rejection.not_performed[0].line == LINES[0]


async def test_connection_that_answers_nothing_twice_is_renewed(tmp_path: Path) -> None:
    """One late answer is waited for; a program that hangs behind an open connection is left."""
    async with handing_over(tmp_path, answer_timeout=0.05) as (peer, adapter):
        for count in (1, 1, 2):
            await until(lambda count=count: len(peer.connections) == count)
            with pytest.raises((LisOutcomeUnknown, LisUnavailable)):
                await adapter.submit(ORDER)
        await until(lambda: len(peer.connections) == 2)
