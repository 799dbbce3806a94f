"""On the wire: who is answered what, what is kept, and an order's fate when the LIS says no, nothing, or something late."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import hl7
import pytest
from hl7.client import MLLPClient
from hl7.mllp import open_hl7_connection, start_hl7_server

from lab_agent.lis.hl7v2 import Hl7v2Adapter
from lab_agent.lis.lab_messages import LabRejection, LabReport
from lab_agent.lis.testing import MemoryInbox, make_correction, make_order, make_report
from lab_agent.shared.errors import LisOutcomeUnknown, LisRejected, LisUnavailable
from tests.fakes.hl7_lis import Hl7Lis, build_oru
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.hl7_wire import FS, SERVER, VT, client, dialled, framed, make_adapter, running, until
from tests.harness.programs import free_port
from tests.harness.proof import share_of

REPORT = make_report(6, make_order(6))
GOOD = build_oru(REPORT, "M1")


async def exchanged(adapter: Hl7v2Adapter, *streams: bytes, answers: int = 1) -> list[list[str]]:
    """Send bytes, and give the answers as their segments; none where the connection ends."""
    async with dialled(adapter.ports[1]) as wire:
        for stream in streams:
            await wire.send(stream)
            await asyncio.sleep(0)
        found = [(await wire.frame()).decode("utf-8", "replace").rstrip("\r") for _ in range(answers)]
    return [answer.split("\r") for answer in found if answer]


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        *(("|||AL|NE", ["CA"]), ("|||AL|AL", ["CA", "AA"]), ("|||NE|AL", ["AA"]), ("|||ER|SU", ["AA"]), ("", ["AA"])),
        # analysers write the number of their result's kind into MSH-16, and still wait for an answer
        *(("||||0", ["AA"]), ("|||0|2", ["AA"]), ("|||Q|AL", ["AA"]), ("|||AL|0", ["CA"]), ("|||al|al", ["CA", "AA"])),
    ],
)
async def test_receiver_ack_mode_follows_msh_request(tmp_path: Path, asked: str, codes: list[str]) -> None:
    """MSH-15 and MSH-16 decide whether a commit or an application acknowledgement is sent, or both."""
    async with running(tmp_path) as adapter:
        answers = await exchanged(adapter, framed(GOOD.replace("|2.5.1", "|2.5.1" + asked, 1)), answers=len(codes))
    assert [answer[1] for answer in answers] == [f"MSA|{code}|M1" for code in codes]


@pytest.mark.parametrize(
    ("bad", "code", "why"),
    [
        (GOOD.replace("ORU^R01^ORU_R01", "ADT^A01"), "AR", "only results"),
        (GOOD.replace("ORU^R01^ORU_R01", "ORU^R99"), "AR", "only the events R01"),
        (GOOD.replace("|P|2.5.1", "|T|2.5.1"), "AR", "MSH-11"),
        (GOOD.replace("|P|2.5.1", "|P|2.5.1||||||KLINGON"), "AR", "code page"),
        (GOOD.replace("PID|1||X", "PID|1||X\rwhat is this"), "AR", "does not begin with a segment name"),
        (GOOD.replace("OBR|", "ZBR|"), "AE", "no OBR"),
        (GOOD.replace("|F\r", "|X\r"), "AE", "operator"),
        (GOOD.encode().replace(b"PID|1||X", b"PID|1||\xff"), "AR", "not valid utf-8"),
        (GOOD.replace("g/L", "g\\X00\\L"), "AE", "control character"),
    ],
)
async def test_receiver_invalid_message_refused_with_reason_and_kept(
    tmp_path: Path, bad: str | bytes, code: str, why: str
) -> None:
    inbox, other = MemoryInbox(), build_oru(make_correction(REPORT, "1.20"), "M2")
    async with running(tmp_path, inbox) as adapter:
        first, second = await exchanged(adapter, framed(bad), framed(other), answers=2)
    assert first[1].startswith(f"MSA|{code}|M1|")
    assert first[2].startswith("ERR|")
    assert why in first[2]
    assert second[1] == "MSA|AA|M2"
    [reason] = inbox.rejections.values()
    assert why in reason
    assert list(inbox.raw.values()) == [bad if isinstance(bad, bytes) else bad.encode()]
    assert b"g/L" not in b"".join(path.read_bytes() for path in (tmp_path / "own").rglob("*.hl7")), "none in plain text"


@pytest.mark.parametrize(
    ("stream", "about", "why"),
    [
        (VT + GOOD.encode() + VT, "M1", "new message began"),
        (framed(GOOD + "NTE|1||" + "x" * 30_000 + "\r"), "M1", "longer than"),
        (framed("no HL7 at all"), "", "does not begin with MSH"),
        (framed("MSH|^~"), "", "five separators"),
    ],
)
async def test_receiver_invalid_frame_refused_next_message_read(tmp_path: Path, stream: bytes, about: str, why: str) -> None:
    inbox, good = MemoryInbox(), framed(build_oru(REPORT, "M2")).removeprefix(VT if stream.endswith(VT) else b"")
    async with running(tmp_path, inbox, max_message_bytes=20_000) as adapter:
        first, second = await exchanged(adapter, stream + good, answers=2)
    assert first[1].startswith(f"MSA|AR|{about}|")
    assert why in first[2]
    assert second[1] == "MSA|AA|M2"
    assert (len(inbox.messages), len(inbox.rejections)) == (1, 1)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (VT + GOOD.encode(), "the connection closed in the middle of the message"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes outside of a frame"),
    ],
)
async def test_receiver_partial_message_not_acknowledged_but_kept(tmp_path: Path, sent: bytes, why: str) -> None:
    """A peer that speaks something else is disconnected."""
    inbox = MemoryInbox()
    async with running(tmp_path, inbox, frame_timeout=0.1) as adapter:
        assert await exchanged(adapter, sent, answers=0 if sent.startswith(VT) else 1) == []
        await until(lambda: bool(inbox.rejections))
    assert (list(inbox.rejections.values()), list(inbox.raw.values())) == ([why], [sent.removeprefix(VT)])
    assert not inbox.messages


async def test_receiver_repeated_message_acknowledged_twice_stored_once(tmp_path: Path) -> None:
    """Also after a time in which the store was away: then nothing is acknowledged."""
    inbox = MemoryInbox(fail_before=1)
    again = GOOD.replace("20240518083000+0300", "20240518093000+0300", 1)
    async with running(tmp_path, inbox) as adapter:
        assert await exchanged(adapter, framed(GOOD)) == []
        answers = await exchanged(adapter, framed(GOOD), framed(again), answers=2)
    assert [answer[1] for answer in answers] == ["MSA|AA|M1", "MSA|AA|M1"]
    assert len(inbox.messages) == 1


async def test_receiver_address_not_allowed_disconnected(tmp_path: Path) -> None:
    async with running(tmp_path, results={**SERVER, "allow": ["10.0.0.0/8"]}) as adapter:
        with suppress(ConnectionError):
            assert await exchanged(adapter, framed(GOOD)) == []


async def test_receiver_port_in_use_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        adapter = make_adapter(tmp_path, results={**SERVER, "port": taken.getsockname()[1]})
        with pytest.raises(LisUnavailable, match="cannot listen"):
            await adapter.start(MemoryInbox())


@asynccontextmanager
async def with_lis(
    folder: Path, inbox: MemoryInbox | None = None, *, lis: Hl7Lis | None = None, **keys: object
) -> AsyncIterator[tuple[Hl7Lis, Hl7v2Adapter]]:
    lis = lis or Hl7Lis(deduplicate_by=str(keys.get("duplicates", "msh10")))
    async with running(folder, inbox, orders=client(await lis.listen()), **keys) as adapter:
        yield lis, adapter
    await lis.close()


async def test_submit_ack_gives_accessions_or_rejects_lines(tmp_path: Path) -> None:
    order, inbox = make_order(6), MemoryInbox()
    async with with_lis(tmp_path / "1") as (_, adapter):
        receipt = await adapter.submit(order)
    assert receipt.line_accessions == {line.key: f"F{line.key[-6:]}" for line in order.lines}
    lis = Hl7Lis(extra_segments=f"ORC|UA|{order.lines[0].key}||||||||||||||^not offered\r")
    async with with_lis(tmp_path / "2", inbox, lis=lis) as (_, adapter):
        await adapter.submit(order)
    [rejection] = inbox.contents
    assert isinstance(rejection, LabRejection)
    assert (rejection.order, rejection.not_performed[0].line) == (order.key, order.lines[0].key)
    assert rejection.not_performed[0].reason == "not offered"


@pytest.mark.parametrize(
    ("code", "error", "failure"),
    [
        *(("AE", "", LisRejected), ("AR", "200", LisRejected), ("AE", "207", LisUnavailable), ("ZZ", "", LisOutcomeUnknown)),
        ("AE", "205^Duplicate key", None),
    ],
)
async def test_submit_nak_code_decides_failure(tmp_path: Path, code: str, error: str, failure: type[Exception] | None) -> None:
    """The code of the negative acknowledgement says: rejected, unavailable, outcome unknown, or taken before."""
    lis = Hl7Lis(answer_code=code, extra_segments=f"ERR|||{error}\r" if error else "")
    async with with_lis(tmp_path, lis=lis) as (_, adapter):
        if failure is None:
            await adapter.submit(make_order(6))
            return
        with pytest.raises(failure):
            await adapter.submit(make_order(6))


@pytest.mark.parametrize("duplicates", ["msh10", "placer", "none"])
async def test_submit_without_ack_unknown_retry_by_duplicate_detection(tmp_path: Path, duplicates: str) -> None:
    """A missing ack leaves the outcome unknown; a retry settles it by the way in which the LIS detects duplicates."""
    order = make_order(6)
    async with with_lis(tmp_path, duplicates=duplicates, answer_timeout=1) as (lis, adapter):
        lis.silent = True
        with pytest.raises(LisOutcomeUnknown):
            await adapter.submit(order)
        assert await adapter.was_received(order.key) is None
        assert adapter.idempotent is (duplicates != "none")
        if adapter.idempotent:
            lis.silent = False
            await adapter.submit(order)
            assert await adapter.was_received(order.key) is True
        assert lis.accepted_ids == [order.key]
        assert all(len(control_id) <= 20 for control_id in lis.received_ids)
        assert (len(set(lis.received_ids)) == len(lis.received_ids)) == (duplicates != "msh10")


async def test_submit_acknowledgement_disabled_succeeds_without_ack(tmp_path: Path) -> None:
    async with with_lis(tmp_path, acknowledgement="none") as (lis, adapter):
        lis.silent = True
        await adapter.submit(make_order(6))
        await until(lambda: bool(lis.accepted_ids))
    assert lis.accepted_ids == [make_order(6).key]


async def test_collect_says_that_nothing_can_come(tmp_path: Path) -> None:
    """Results come by themselves, so only the collection can notice that the LIS is gone; it ends with the next connection."""
    lis, port = Hl7Lis(), free_port()
    async with running(tmp_path, orders=client(port)) as adapter:

        async def is_told() -> bool:
            try:
                await adapter.collect()
            except LisUnavailable as failure:
                return "is not connected" in str(failure)
            return False

        async def is_over() -> bool:
            return not await is_told()

        await wait_until(is_told, "the missing LIS is noticed")
        await lis.listen(port)
        await wait_until(is_over, "the connection is there")
    await lis.close()


async def test_python_hl7_clients_and_server_interoperate(tmp_path: Path) -> None:
    inbox = MemoryInbox()

    def blocking(port: int) -> bytes:
        with MLLPClient("127.0.0.1", port) as client:
            return client.send_message(hl7.parse(GOOD))

    async with running(tmp_path, inbox) as adapter:
        answer = await asyncio.to_thread(blocking, adapter.ports[1])
        assert str(hl7.parse(answer[1:-2].decode()).segment("MSA")) == "MSA|AA|M1"
        reader, writer = await open_hl7_connection("127.0.0.1", adapter.ports[1], encoding="utf-8")
        writer.writemessage(hl7.parse(build_oru(REPORT, "M2")))
        await writer.drain()
        assert str((await reader.readmessage()).segment("MSA")) == "MSA|AA|M2"
        writer.close()
        await writer.wait_closed()
    assert len(inbox.messages) == 2

    got: list[hl7.Message] = []

    async def serve(reader, writer):
        message = await reader.readmessage()
        got.append(message)
        writer.writemessage(message.create_ack("AA"))
        await writer.drain()
        await reader.read()
        writer.close()

    server = await start_hl7_server(serve, "127.0.0.1", 0, encoding="utf-8")
    async with running(tmp_path, inbox, orders=client(server.sockets[0].getsockname()[1])) as adapter:
        await adapter.submit(make_order(6))
    server.close()
    await server.wait_closed()
    assert str(got[0].segment("OBR")[2]) == make_order(6).lines[0].key


PIECES = [b"|", b"^", b"~", b"\\", b"&", b"\r", b"\n", b"\x0b", b"\x1c", b"\0", b"MSH|^~\\&|", b"MSA|AA|1"]


def mutated(message: bytes, rng: random.Random) -> bytes:
    data = bytearray(message)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[place : place + rng.randint(1, 20)] = b""
            case 1:
                data[place:place] = rng.choice(PIECES)
            case 2:
                data[place:place] = rng.randbytes(3)
            case 3 if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
            case _:
                data += data[place : place + 30]
    return bytes(byte for byte in data if byte not in b"\x0b\x1c")


LONG = pytest.param(share_of(10_000, at_least=500), marks=pytest.mark.proof)


@pytest.mark.parametrize("count", [pytest.param(300, marks=pytest.mark.slow), LONG])
async def test_receiver_mutated_messages_never_acknowledged_unless_stored(tmp_path: Path, count: int) -> None:
    """Mutated messages crash nothing, and none is acknowledged positively without being stored."""
    rng, inbox = random.Random(7), MemoryInbox()
    good = [build_oru(replace(REPORT, report_id=f"B{number}"), f"M{number}").encode() for number in range(20)]
    async with running(tmp_path, inbox) as adapter, dialled(adapter.ports[1]) as wire:
        for number in range(count):
            inbox.messages.clear()
            data = mutated(rng.choice(good), rng)
            await wire.send(framed(data) + framed(build_oru(REPORT, f"OK{number}")))
            answers: list[list[str]] = []
            while not answers or answers[-1][1] != f"MSA|AA|OK{number}":
                whole = await wire.frame(timeout=DEADLINE)
                assert VT not in whole
                assert FS not in whole
                answers.append(whole.decode("utf-8", "replace").rstrip("\r").split("\r"))
                assert [segment[:3] for segment in answers[-1]] in (["MSH", "MSA"], ["MSH", "MSA", "ERR"])
            kept = sum(isinstance(content, LabReport | LabRejection) for content in inbox.contents) - 1
            positive = [answer for answer in answers[:-1] if answer[1][4:6] in {"AA", "CA"}]
            assert not positive or kept >= 1, (number, data)
