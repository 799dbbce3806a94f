"""On the wire and in `try`: bytes become the same, under the same ids; what surrounds a message loses nothing."""

from base64 import b64encode
from pathlib import Path

import pytest

from lab_agent.results.trial.captured_messages import split_messages
from tests.harness.documents import PDF
from tests.harness.hl7_peer import connected_peer, read_message
from tests.harness.hl7_wire import framed

L1 = "LAAAAAAAAAAAAAAA"
DATA = b64encode(PDF).decode()
ED = "OBX|2|ED|PDF^Report^L||^application^pdf^Base64^{}||||||F"
BROKEN = "\n".join(DATA[start : start + 76] for start in range(0, len(DATA), 76))


def message(number: int = 1, *more: str, kind: str = "ORU^R01", head: str = "") -> str:
    segments = (
        f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|{number}|P|2.5.1{head}",
        "PID|1||4711||DOE^J||19800517|F",
        f"OBR|1|{L1}|F{number}|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F",
        f"OBX|1|NM|GLU^Glucose^L||{number}.1|mmol/L|||||F",
        *more,
    )
    return "".join(f"{segment}\r" for segment in segments)


FRAMES: dict[str, tuple[bytes, int]] = {
    "plain": (message().encode(), 1),
    "crlf": (message().replace("\r", "\r\n").encode(), 1),
    "lf": (message().replace("\r", "\n").encode(), 1),
    "byte order mark": (b"\xef\xbb\xbf" + message().encode(), 1),
    "padding": (b"\r\n " + message().encode() + b"\0\x1a", 1),
    "padding beside the mark": (b"\r\n\xef\xbb\xbf" + message().encode() + b"\r\n \0", 1),
    "document": (message(1, ED.format(DATA)).encode(), 1),
    "lf in the document": (message(1, ED.format(BROKEN)).encode(), 1),
    "crlf in the document": (message(1, ED.format(BROKEN.replace("\n", "\r\n"))).encode(), 0),
    "lf in a note": (message(1, "NTE|1||drawn twice\nboth full").encode(), 1),
    "empty line": (message().replace("\rOBX", "\r\rOBX").encode(), 1),
    "code page": (message(1, "NTE|1||кровь", head="||||||WINDOWS-1251").encode("cp1251"), 1),
    "letters of no utf-8": (message(1, "NTE|1||кровь").encode("cp1251"), 0),
    "utf-16": (message().encode("utf-16"), 0),
    "answer to a query": (message(1, "MSA|AA|7").encode(), 1),
    "trailing batch end": (message().encode() + b"BTS|1\rFTS|1\r", 1),
    "batch of one": (b"BHS|^~\\&|LIS\r" + message().encode() + b"BTS|1\r", 1),
    "batch of two": (b"FHS|^~\\&|LIS\rBHS|^~\\&|LIS\r" + (message() + message(2)).encode() + b"BTS|2\rFTS|1\r", 2),
    "batch of two with lf": ((f"BHS|^~\\&|LIS\r{message()}{message(2)}BTS|2\r").replace("\r", "\n").encode(), 2),
    "batch with a bad one": (b"BHS|^~\\&|LIS\r" + (message().replace("PID", "?") + message(2)).encode() + b"BTS|2\r", 1),
    "two without a batch": ((message() + message(2)).encode(), 0),
    "wrong type": (message(kind="ADT^A01").encode(), 0),
    "too long": (message(1, ED.format("A" * 40_000)).encode(), 0),
}


TWO_ANSWERS = {"batch of two", "batch of two with lf", "batch with a bad one"}


@pytest.mark.parametrize("name", FRAMES)
async def test_try_reads_a_frame_as_it_was_received(tmp_path: Path, name: str) -> None:
    frame, expected = FRAMES[name]
    async with connected_peer(tmp_path, max_message_bytes=30_000) as peer:
        await peer.wire.send(framed(b"") * 5)  # empty frames are left out
        codes = await peer.codes(frame, 2 if name in TWO_ANSWERS else 1)
        received = dict(peer.inbox.messages)
        (captured,) = split_messages(framed(frame))
        parsed, again = [await peer.adapter.parse_message(each, name) for each in (captured, framed(frame))]
    assert codes.count("AA") == len(received) == expected
    assert {part.message_id: part.content for part in parsed.parts if part.content} == received
    assert again == parsed
    assert [part.problem for part in parsed.parts if part.problem] == [*peer.inbox.rejections.values()]


async def test_try_reads_a_file_without_frames_alike(tmp_path: Path) -> None:
    for name in [name for name, (_, count) in FRAMES.items() if count == 1 and "batch" not in name]:
        async with connected_peer(tmp_path) as peer:
            await peer.codes(FRAMES[name][0])
            (bare,) = split_messages(FRAMES[name][0])
            parsed = await peer.adapter.parse_message(bare, name)
        assert [part.content for part in parsed.parts] == peer.reports != [], name


async def test_each_message_of_a_batch_is_answered_by_its_id(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        await peer.wire.send(framed(FRAMES["batch of two"][0]))
        named = [(await peer.wire.frame()).split(b"MSA|AA|")[1][:1] for _ in range(2)]
        assert named == [b"1", b"2"]
        assert peer.values() == {"F1": ["1.1"], "F2": ["2.1"]}


# --- what surrounds a message, and how its lines end, differs between systems -----------------------------------------------


def obr(filler: str) -> str:
    return f"OBR|1||{filler}|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"


def obx(code: str, value: str) -> str:
    return f"OBX|1|NM|{code}^^L||{value}|mmol/L|||||F"


HEAD = message().split("\rOBR")[0]
NA, K, OTHER = obx("NA", "1.1"), obx("K", "1.2"), obx("NA", "2.1")


@pytest.mark.parametrize(
    "lines",
    [
        f"{obr('A')}\r{NA}\n{K}\r{obr('B')}\r{OTHER}",
        f"{obr('A')}\r{NA}\rNTE|1||first line\n{K}\n{obr('B')}\n\n{OTHER}",
        f"{obr('A')}\n{NA}\n{K}\n{obr('B')}\n{OTHER}",
    ],
)
async def test_lf_among_cr_ends_a_segment(tmp_path: Path, lines: str) -> None:
    assert (await read_message(tmp_path, HEAD, lines)).said == "A: 1.1, 1.2; B: 2.1"
