"""On the wire: what surrounds a message, and how its lines end, differs between systems and loses nothing."""

from pathlib import Path

import pytest

from tests.fakes.hl7_lis import CR, FS, VT
from tests.harness.hl7_peer import Hl7Peer, connected_peer

HEADER = "MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1"
PID = "PID|1||4711^^^MIS||DOE^J||19800517|F"


def obr(filler: str) -> str:
    return f"OBR|1||{filler}|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"


def obx(code: str, value: str) -> str:
    return f"OBX|1|NM|{code}^^L||{value}|mmol/L|||||F||||LAB1"


async def send_bytes(peer: Hl7Peer, data: bytes) -> bytes:
    """Send a frame as it is; returns the code of its answer."""
    peer.writer.write(VT + data + FS + CR)
    answer = await peer.reader.readuntil(FS + CR)
    return next(line for line in answer[1:].split(CR) if line.startswith(b"MSA")).split(b"|")[1]


@pytest.mark.parametrize(
    "lines",
    [
        f"{obr('A')}\r{obx('NA', '1.1')}\n{obx('K', '1.2')}\r{obr('B')}\r{obx('NA', '2.1')}\r",
        f"{obr('A')}\r{obx('NA', '1.1')}\rNTE|1||first line\n{obx('K', '1.2')}\n{obr('B')}\n\n{obx('NA', '2.1')}\r",
        f"{obr('A')}\n{obx('NA', '1.1')}\n{obx('K', '1.2')}\n{obr('B')}\n{obx('NA', '2.1')}\r",
    ],
)
async def test_lf_among_cr_ends_a_segment(tmp_path: Path, lines: str) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await send_bytes(peer, f"{HEADER}\r{PID}\r{lines}".encode()) == b"AA"
        assert peer.values() == {"A": ["1.1", "1.2"], "B": ["2.1"]}


async def test_lf_within_a_text_stays_one(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        segments = (HEADER, PID, obr("A"), obx("NA", "1.1"), "NTE|1||drawn twice\nBoth tubes were full")
        assert await peer.send(*segments) == "AA"
        assert peer.reports[0].observations[0].note == "drawn twice\nBoth tubes were full"


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\r", b"\n", b"  ", b"\r\n\xef\xbb\xbf"])
@pytest.mark.parametrize("behind", [b"", b"\x00", b"\x1a", b"\r\n \x00"])
async def test_padding_around_a_message_is_left_out(tmp_path: Path, before: bytes, behind: bytes) -> None:
    """The same message with other padding is the same message."""
    whole = "\r".join((HEADER, PID, obr("A"), obx("NA", "1.1"))).encode() + b"\r"
    async with connected_peer(tmp_path) as peer:
        assert await send_bytes(peer, before + whole + behind) == b"AA"
        assert peer.values() == {"A": ["1.1"]}


async def test_empty_frames_keep_the_connection_open(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        peer.writer.write((VT + FS + CR) * 5)
        assert await peer.send(HEADER, PID, obr("A"), obx("NA", "1.1")) == "AA"
        assert not peer.inbox.rejections


@pytest.mark.parametrize(
    ("named", "codec", "encoding"),
    [
        ("ASCII", "utf-8", "utf-8"),
        ("ASCII", "cp1252", "cp1252"),
        ("ISO IR100", "latin-1", "utf-8"),
        ("ISO_8859-1", "latin-1", "utf-8"),
    ],
)
async def test_letters_beyond_the_named_code_page(tmp_path: Path, named: str, codec: str, encoding: str) -> None:
    text = "OBX|1|ST|TXT^^L||trüb||||||F"
    whole = "\r".join((f"{HEADER}||||||{named}", PID, obr("A"), text)).encode(codec)
    async with connected_peer(tmp_path, encoding=encoding) as peer:
        assert await send_bytes(peer, whole) == b"AA"
        assert peer.values() == {"A": ["trüb"]}


@pytest.mark.parametrize("sent", ["20240518100000", "yesterday"])
async def test_time_of_the_header_is_read_only_where_needed(tmp_path: Path, sent: str) -> None:
    header = HEADER.replace("20240518100000+0300", sent)
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(header, PID, obr("A"), obx("NA", "1.1")) == "AA"
        assert (await peer.send(header, PID, obr("B").replace("20240518090000+0300", ""), obx("NA", "2.1"))).startswith("AE")
        assert peer.values() == {"A": ["1.1"]}
