"""On the wire: who is answered what, what is kept, and an order's fate when the LIS says no, nothing, or something late."""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import hl7
import pytest
from hl7.client import MLLPClient
from hl7.mllp import open_hl7_connection, start_hl7_server

from lab_agent.domain.lab_messages import AccessionUpdate, LabRejection, LabReport
from lab_agent.errors import LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.testing import MemoryInbox, make_correction, make_order, make_report
from tests.fakes.hl7_lis import FS, VT, Hl7Lis, build_oru
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.programs import free_port

CR = b"\r"
REPORT = make_report(6, make_order(6))
SHARE = float(os.environ.get("LAB_PROOF_SHARE", "0.05"))


def make(folder: Path, orders_port: int, *, role: str = "client", **keys: object) -> Hl7v2Adapter:
    return Hl7v2Adapter(
        Hl7v2Settings.model_validate(
            {
                "orders": {"role": role, "port": orders_port},
                "results": {"role": "server", "port": 0},
                "folder": folder / "own",
                "duplicates": "msh10",
                "answer_timeout": 5,
                "connect_timeout": 3,
                "reconnect_wait": 0.02,
                **keys,
            }
        ),
        "hl7v2",
    )


@asynccontextmanager
async def listening(folder: Path, inbox: MemoryInbox | None = None, **keys: object) -> AsyncIterator[Hl7v2Adapter]:
    adapter = make(folder, free_port(), role="server", **keys)
    await adapter.start(GuardedInbox(inbox or MemoryInbox(), "hl7v2"))
    try:
        yield adapter
    finally:
        await adapter.stop()


async def exchanged(port: int, *streams: bytes, answers: int = 1) -> list[list[str]]:
    """Send bytes, and give the answers as their segments."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for stream in streams:
        writer.write(stream)
        await writer.drain()
        await asyncio.sleep(0)
    found = []
    try:
        for _ in range(answers):
            async with asyncio.timeout(DEADLINE):
                whole = await reader.readuntil(FS + CR)
            assert whole.startswith(VT)
            found.append(whole[1:-2].decode().rstrip("\r").split("\r"))
    finally:
        writer.close()
        await writer.wait_closed()
    return found


async def until(reached: Callable[[], bool]) -> None:
    end = asyncio.get_running_loop().time() + 5
    while not reached():
        assert asyncio.get_running_loop().time() < end, "waited in vain"
        await asyncio.sleep(0.01)


def framed(text: str | bytes) -> bytes:
    return VT + (text.encode() if isinstance(text, str) else text) + FS + CR


GOOD = build_oru(REPORT, "M1")


async def test_receiver_split_stream_acknowledges_each_message(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    stream = b"".join(framed(build_oru(REPORT, f"M{number}")) for number in range(3))
    async with listening(tmp_path, inbox) as adapter:
        answers = await exchanged(adapter.ports[1], stream[:10], stream[10:1000], stream[1000:], answers=3)
    assert [answer[1] for answer in answers] == ["MSA|AA|M0", "MSA|AA|M1", "MSA|AA|M2"]
    assert [len(answer) for answer in answers] == [2, 2, 2]
    assert len(inbox.messages) == 3


@pytest.mark.parametrize(
    ("asked", "codes"),
    [("|||AL|NE", ["CA"]), ("|||AL|AL", ["CA", "AA"]), ("|||NE|AL", ["AA"]), ("|||ER|SU", ["AA"]), ("", ["AA"])],
)
async def test_receiver_ack_mode_follows_msh_request(tmp_path: Path, asked: str, codes: list[str]) -> None:
    """MSH-15 and MSH-16 decide whether a commit or an application acknowledgement is sent, or both."""
    async with listening(tmp_path) as adapter:
        answers = await exchanged(adapter.ports[1], framed(GOOD.replace("|2.5.1", "|2.5.1" + asked, 1)), answers=len(codes))
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
        (GOOD.replace("NM|", "NM|\0").replace("\0", "", 1).replace("g/L", "g\\X00\\L"), "AE", "control character"),
    ],
)
async def test_receiver_invalid_message_refused_with_reason_and_kept(
    tmp_path: Path, bad: str | bytes, code: str, why: str
) -> None:
    report = make_correction(REPORT, "1.20")
    inbox = MemoryInbox()
    async with listening(tmp_path, inbox) as adapter:
        first, second = await exchanged(adapter.ports[1], framed(bad), framed(build_oru(report, "M2")), answers=2)
    assert first[1].startswith(f"MSA|{code}|M1|")
    assert why in first[2]
    assert first[2].startswith("ERR|")
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
    inbox = MemoryInbox()
    async with listening(tmp_path, inbox, max_message_bytes=20_000) as adapter:
        first, second = await exchanged(
            adapter.ports[1], stream + framed(build_oru(REPORT, "M2")).removeprefix(VT if stream.endswith(VT) else b""), answers=2
        )
    assert first[1].startswith(f"MSA|AR|{about}|")
    assert why in first[2]
    assert second[1] == "MSA|AA|M2"
    assert len(inbox.messages) == 1
    assert len(inbox.rejections) == 1


async def test_receiver_partial_message_not_acknowledged_but_kept(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    async with listening(tmp_path, inbox) as adapter:
        await exchanged(adapter.ports[1], VT + GOOD.encode(), answers=0)
        await until(lambda: bool(inbox.rejections))
    assert list(inbox.rejections.values()) == ["the connection closed in the middle of the message"]
    assert list(inbox.raw.values()) == [GOOD.encode()]
    assert not inbox.messages


async def test_receiver_repeated_message_acknowledged_twice_stored_once(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    again = GOOD.replace("20240518083000+0300", "20240518093000+0300", 1)
    async with listening(tmp_path, inbox) as adapter:
        answers = await exchanged(adapter.ports[1], framed(GOOD), framed(again), answers=2)
    assert [answer[1] for answer in answers] == ["MSA|AA|M1", "MSA|AA|M1"]
    assert len(inbox.messages) == 1


async def test_receiver_store_unavailable_sends_no_ack(tmp_path: Path) -> None:
    inbox = MemoryInbox(fail_before=1)
    async with listening(tmp_path, inbox) as adapter:
        with pytest.raises(asyncio.IncompleteReadError):
            await exchanged(adapter.ports[1], framed(GOOD))
        assert await exchanged(adapter.ports[1], framed(GOOD))
    assert len(inbox.messages) == 1


async def test_receiver_address_not_allowed_disconnected(tmp_path: Path) -> None:
    async with listening(tmp_path, results={"role": "server", "port": 0, "allow": ["10.0.0.0/8"]}) as adapter:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await exchanged(adapter.ports[1], framed(GOOD))


@asynccontextmanager
async def with_lis(
    folder: Path, inbox: MemoryInbox | None = None, *, lis: Hl7Lis | None = None, **keys: object
) -> AsyncIterator[tuple[Hl7Lis, Hl7v2Adapter]]:
    lis = lis or Hl7Lis(deduplicate_by=str(keys.get("duplicates", "msh10")))
    adapter = make(folder, await lis.listen(), **keys)
    await adapter.start(inbox or MemoryInbox())
    try:
        yield lis, adapter
    finally:
        await adapter.stop()
        await lis.close()


async def test_submit_ack_accessions_become_result(tmp_path: Path) -> None:
    order = make_order(6)
    async with with_lis(tmp_path) as (_, adapter):
        receipt = await adapter.submit(order)
    assert receipt.line_accessions == {line.key: f"F{line.key[-6:]}" for line in order.lines}


async def test_submit_ack_line_rejection_goes_to_inbox(tmp_path: Path) -> None:
    order, inbox = make_order(6), MemoryInbox()
    lis = Hl7Lis(extra_segments=f"ORC|UA|{order.lines[0].key}||||||||||||||^not offered\r")
    async with with_lis(tmp_path, inbox, lis=lis) as (_, adapter):
        await adapter.submit(order)
    [rejection] = inbox.contents
    assert isinstance(rejection, LabRejection)
    assert (rejection.order, rejection.not_performed[0].line) == (order.key, order.lines[0].key)
    assert rejection.not_performed[0].reason == "not offered"


@pytest.mark.parametrize(
    ("code", "error", "failure"),
    [("AE", "", LisRejected), ("AR", "200", LisRejected), ("AE", "207", LisUnavailable), ("ZZ", "", LisOutcomeUnknown)],
)
async def test_submit_nak_code_decides_failure(tmp_path: Path, code: str, error: str, failure: type[Exception]) -> None:
    """The code of the negative acknowledgement says: rejected, unavailable or outcome unknown."""
    lis = Hl7Lis(answer_code=code, extra_segments=f"ERR||||{error}\r".replace("ERR||||", "ERR|||") if error else "")
    async with with_lis(tmp_path, lis=lis) as (_, adapter):
        with pytest.raises(failure):
            await adapter.submit(make_order(6))


async def test_submit_duplicate_key_error_is_success(tmp_path: Path) -> None:
    async with with_lis(tmp_path, lis=Hl7Lis(answer_code="AE", extra_segments="ERR|||205^Duplicate key\r")) as (_, adapter):
        await adapter.submit(make_order(6))


@pytest.mark.parametrize("duplicates", ["msh10", "placer", "none"])
async def test_submit_without_ack_unknown_retry_by_duplicate_detection(tmp_path: Path, duplicates: str) -> None:
    """A missing ack leaves the outcome unknown; a retry settles it by the way in which the LIS detects duplicates."""
    order = make_order(6)
    async with with_lis(tmp_path, duplicates=duplicates, answer_timeout=0.5) as (lis, adapter):
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


async def test_submit_foreign_ack_ignored_late_ack_settles(tmp_path: Path) -> None:
    """An ack with another control id is ignored, and a late one for the order settles its outcome."""
    order, inbox = make_order(6), MemoryInbox()
    async with with_lis(tmp_path, inbox, duplicates="none", answer_timeout=0.2) as (lis, adapter):
        lis.silent = True
        submitting = asyncio.create_task(adapter.submit(order))
        await until(lambda: bool(lis.received_ids))
        lis.writers[0].write(framed(lis.build_ack("AA", "ANOTHER", [])))
        with pytest.raises(LisOutcomeUnknown):
            await submitting
        assert await adapter.was_received(order.key) is None
        late = framed(lis.build_ack("AA", lis.received_ids[0], [order.lines[0].key]))
        await exchanged(adapter.ports[1], late, answers=0)
        await until(lambda: bool(inbox.contents))
        assert await adapter.was_received(order.key) is True
        assert lis.accepted_ids == [order.key]
        [numbers] = inbox.contents
        assert isinstance(numbers, AccessionUpdate)


async def test_submit_without_connection_is_unavailable(tmp_path: Path) -> None:
    """Without a connection nothing was sent: the LIS is unavailable, and the outcome is not unknown."""
    adapter = make(tmp_path, free_port(), connect_timeout=0.1)
    with pytest.raises(LisUnavailable):
        await adapter.check()
    await adapter.start(MemoryInbox())
    try:
        with pytest.raises(LisUnavailable):
            await adapter.submit(make_order(6))
        with pytest.raises(LisUnavailable):
            await adapter.check()
    finally:
        await adapter.stop()


async def test_submit_acknowledgement_disabled_succeeds_without_ack(tmp_path: Path) -> None:
    async with with_lis(tmp_path, acknowledgement="none") as (lis, adapter):
        lis.silent = True
        await adapter.submit(make_order(6))
        await until(lambda: bool(lis.accepted_ids))
    assert lis.accepted_ids == [make_order(6).key]


def certificate(folder: Path) -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_tls_with_certificates_works_in_both_directions(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = {"ca": str(cert), "certificate": str(cert), "key": str(key)}
    inbox, port = MemoryInbox(), free_port()
    links = {"results": {"role": "server", "port": 0, "tls": tls}}
    async with listening(tmp_path, inbox, **links) as adapter:
        context = ssl.create_default_context(cafile=cert)
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await over_tls(adapter.ports[1], context)
        context.load_cert_chain(cert, key)
        assert b"MSA|AA|M1" in await over_tls(adapter.ports[1], context)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(cert, key)
    lis = Hl7Lis()
    lis.server = await asyncio.start_server(lis.on_connection, "127.0.0.1", port, ssl=server)
    orders = {"role": "client", "port": port, "tls": {"ca": str(cert), "server_name": "localhost"}}
    caller = make(tmp_path, port, orders=orders)
    await caller.start(inbox)
    await caller.submit(make_order(6))
    await caller.stop()
    await lis.close()
    assert len(inbox.messages) == len(lis.accepted_ids) == 1


async def over_tls(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        writer.write(framed(GOOD))
        await writer.drain()
        async with asyncio.timeout(DEADLINE):
            return await reader.readuntil(FS + CR)
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


async def test_python_hl7_clients_and_server_interoperate(tmp_path: Path) -> None:
    inbox = MemoryInbox()

    def blocking(port: int) -> bytes:
        with MLLPClient("127.0.0.1", port) as client:
            return client.send_message(hl7.parse(GOOD))

    async with listening(tmp_path, inbox) as adapter:
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
    caller = make(tmp_path, server.sockets[0].getsockname()[1])
    await caller.start(inbox)
    await caller.submit(make_order(6))
    await caller.stop()
    server.close()
    await server.wait_closed()
    assert str(got[0].segment("OBR")[2]) == make_order(6).lines[0].key


def mutated(message: bytes, rng: random.Random) -> bytes:
    data = bytearray(message)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[place : place + rng.randint(1, 20)] = b""
            case 1:
                data[place:place] = rng.choice(
                    [b"|", b"^", b"~", b"\\", b"&", b"\r", b"\n", b"\x0b", b"\x1c", b"\0", b"MSH|^~\\&|", b"MSA|AA|1"]
                )
            case 2:
                data[place:place] = rng.randbytes(3)
            case 3 if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
            case _:
                piece = data[place : place + 30]
                data[rng.randrange(len(data) + 1) :][:0] = piece
                data += piece
    return bytes(byte for byte in data if byte not in b"\x0b\x1c")


@pytest.mark.parametrize("count", [300, pytest.param(max(500, int(10_000 * SHARE)), marks=pytest.mark.proof)])
async def test_receiver_mutated_messages_never_acknowledged_unless_stored(tmp_path: Path, count: int) -> None:
    """Mutated messages crash nothing, and none is acknowledged positively without being stored."""
    rng = random.Random(7)
    inbox = MemoryInbox()
    good = [build_oru(replace(REPORT, report_id=f"B{number}"), f"M{number}").encode() for number in range(20)]
    async with listening(tmp_path, inbox) as adapter:
        reader, writer = await asyncio.open_connection("127.0.0.1", adapter.ports[1])
        for number in range(count):
            inbox.messages.clear()
            inbox.attempts = 0
            data = mutated(rng.choice(good), rng)
            writer.write(framed(data) + framed(build_oru(REPORT, f"OK{number}")))
            answers = []
            while not answers or answers[-1][1] != f"MSA|AA|OK{number}":
                async with asyncio.timeout(DEADLINE):
                    whole = await reader.readuntil(FS + CR)
                answers.append(whole[1:-2].decode("utf-8", "replace").rstrip("\r").split("\r"))
                assert whole.count(VT) == whole.count(FS) == 1
                assert [segment[:3] for segment in answers[-1]] in (["MSH", "MSA"], ["MSH", "MSA", "ERR"])
            kept = sum(isinstance(content, LabReport | LabRejection) for content in inbox.contents) - 1
            positive = [answer for answer in answers[:-1] if answer[1][4:6] in {"AA", "CA"}]
            assert len(positive) <= len(answers) - 1
            assert not positive or kept >= 1, (number, data)
        writer.close()
        await writer.wait_closed()


async def test_receiver_non_hl7_peer_kept_and_disconnected(tmp_path: Path) -> None:
    inbox = MemoryInbox()
    async with listening(tmp_path, inbox, frame_timeout=0.1) as adapter:
        reader, writer = await asyncio.open_connection("127.0.0.1", adapter.ports[1])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(DEADLINE):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert list(inbox.rejections.values()) == ["bytes outside of a frame"]
    assert list(inbox.raw.values()) == [b"GET / HTTP/1.1\r\n\r\n"]


async def test_receiver_port_in_use_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        adapter = make(tmp_path, 1, results={"role": "server", "port": taken.getsockname()[1]})
        with pytest.raises(LisUnavailable, match="cannot listen"):
            await adapter.start(MemoryInbox())


async def test_parse_message_reads_as_the_connection_does(tmp_path: Path) -> None:
    """The ids of its parts are those that the inbox got, and nothing is started, answered or stored."""
    inbox = MemoryInbox()
    async with listening(tmp_path, inbox) as adapter:
        await exchanged(adapter.ports[1], framed(GOOD))
        read = await adapter.parse_message(GOOD.encode(), "x")
    assert {part.message_id: part.content for part in read.parts} == inbox.messages
    stopped = make(tmp_path / "other", free_port())
    assert await stopped.parse_message(GOOD.encode(), "x") == read
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "raw", [b"", b"\x00\x01", b"MSH", GOOD.replace("ORU^R01", "ADT^A08").encode(), GOOD.replace("|P|", "|T|", 1).encode()]
)
async def test_parse_message_of_invalid_bytes_is_problem(tmp_path: Path, raw: bytes) -> None:
    (part,) = (await make(tmp_path, free_port()).parse_message(raw, "x")).parts
    assert part.content is None
    assert part.problem


async def test_collect_says_that_nothing_can_come(tmp_path: Path) -> None:
    """Results come by themselves, so only the collection can notice that the LIS is gone; it ends with the next connection."""
    port = free_port()
    adapter = make(tmp_path, port)
    await adapter.start(GuardedInbox(MemoryInbox(), "hl7v2"))

    async def is_told() -> bool:
        try:
            await adapter.collect()
        except LisUnavailable as failure:
            return "is not connected" in str(failure)
        return False

    async def is_over() -> bool:
        return not await is_told()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    await wait_until(is_told, "the missing LIS is noticed")
    server = await asyncio.start_server(hold, "127.0.0.1", port)
    await wait_until(is_over, "the connection is there")
    await adapter.stop()
    server.close()
    await server.wait_closed()
