"""On the wire and in `try`: in which code page a message is, and that nothing becomes a number by what was left out of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab_agent.lis.lab_order import OrderPatient
from lab_agent.lis.testing import make_order
from lab_agent.shared.errors import LisRejected
from tests.fakes.hl7_lis import CR
from tests.harness.hl7_peer import Hl7Peer, connected_peer, value_text

OBR = "OBR|1||A|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
KANJI = b"\x1b$B0|\x1b(B"
"""A character of JIS X 0208 whose second byte is a field separator."""
REFUSED = None


def message(value: bytes, charset: str = "", *, kind: str = "ST", unit: str = "/[HPF]", more: bytes = b"") -> bytes:
    header = f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1||||||{charset}"
    obx = b"OBX|1|" + kind.encode() + b"|5821-4^Leukocytes^LN||" + value + f"|{unit}|||||F".encode()
    return CR.join((header.encode(), b"PID|1||4711", OBR.encode(), obx, *([more] if more else []))) + CR


async def read(peer: Hl7Peer, data: bytes) -> str | None:
    """Send a message, and try it: both read the same. The value, or None for a refusal."""
    [code] = await peer.codes(data)
    (part,) = (await peer.adapter.parse_message(data, "captured")).parts
    assert (part.problem is None) == (code == "AA")
    if part.problem is not None:
        assert not peer.reports
        return REFUSED
    assert part.content == peer.reports[0]
    [one] = peer.reports[0].observations
    return value_text(one)


@pytest.mark.parametrize("kind", ["ST", "NM", "SN", "CWE", "FT"])
async def test_digits_with_something_unseen_between_are_refused(tmp_path: Path, kind: str) -> None:
    for between in ("\x01", "\x00", "\u200b", "\x7f", "\u0096", "\ufeff", "\u2060", "\xad", "\u200e"):
        value = ("^" if kind == "SN" else "") + f"5{between}10"
        async with connected_peer(tmp_path) as peer:
            assert await read(peer, message(value.encode(), "UNICODE UTF-8", kind=kind)) is REFUSED, between


@pytest.mark.parametrize(
    ("value", "codec", "charset", "configured", "expected"),
    [
        ("5–10", "cp1252", "8859/1", "utf-8", "5–10 /[HPF]"),
        ("5–10", "cp1252", "ISO IR100", "utf-8", "5–10 /[HPF]"),
        ("5–10", "cp1252", "", "iso-8859-1", "5–10 /[HPF]"),
        ("5…10", "cp1252", "8859/1", "utf-8", "5…10 /[HPF]"),
        ("5–10 ğ", "cp1254", "8859/9", "utf-8", "5–10 ğ /[HPF]"),
        ("5\\X96\\10", "ascii", "8859/1", "utf-8", "5–10 /[HPF]"),
        ("5–10", "cp1252", "", "cp1252", "5–10 /[HPF]"),
        ("5–10", "cp1250", "8859/2", "utf-8", REFUSED),  # whose letters are others than those of cp1250
        ("5–10", "cp1251", "8859/5", "utf-8", REFUSED),
        ("5–10", "utf-8", "8859/1", "utf-8", REFUSED),
        ("5–10", "utf-8", "", "cp1251", REFUSED),
        ("5–10", "cp1252", "", "utf-8", REFUSED),
        ("trüb", "cp850", "8859/1", "utf-8", REFUSED),
        # letters beyond the page that the message names
        *(("trüb", codec, "ASCII", codec, "trüb") for codec in ("utf-8", "cp1252")),
        *(("trüb", "latin-1", each, "utf-8", "trüb") for each in ("ISO IR100", "ISO_8859-1")),
    ],
)
async def test_dash_of_another_code_page_stays_one(
    tmp_path: Path, value: str, codec: str, charset: str, configured: str, expected: str | None
) -> None:
    async with connected_peer(tmp_path, encoding=configured) as peer:
        assert await read(peer, message(value.encode(codec), charset)) == expected


@pytest.mark.parametrize(
    ("value", "charset", "expected"),
    [
        (KANJI, "~ISO IR87", "淫"),
        (KANJI, "ISO IR14~ISO IR87", "淫"),
        (KANJI, "ASCII~ISO IR87~ISO IR159", "淫"),
        (KANJI.replace(b"(B", b"(J"), "ISO IR6~ISO IR87", "淫"),
        (b"\x1b(I6@\x1b(B", "~ISO IR87", "ｶﾀ"),
        (b"plain", "~ISO IR87", "plain"),
        (KANJI, "", REFUSED),
        (KANJI, "UNICODE UTF-8", REFUSED),
        (KANJI, "8859/1", REFUSED),
        (KANJI, "KS X 1001", REFUSED),
        (KANJI[:-3], "~ISO IR87", REFUSED),  # never switched back: separators are among the text
        (b"\x1b$)C\x0e0|\x0f", "", REFUSED),
        (b"\\M2442\\0|\\C2842\\", "", REFUSED),
        (b"\\M2442\\0|\\C2842\\", "8859/1", REFUSED),
        (b"\\C2849\\6^\\C2842\\", "", REFUSED),
    ],
)
async def test_switches_of_sets_are_read_or_refused(tmp_path: Path, value: bytes, charset: str, expected: str | None) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await read(peer, message(value, charset, unit="")) == expected


async def test_kanji_in_the_header_moves_no_field(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await read(peer, message(KANJI, "~ISO IR87", unit="").replace(b"|LAB|", b"|" + KANJI + b"|")) == "淫"


async def test_digits_in_a_comment_stay_apart(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        data = message(b"7", kind="NM", more="NTE|1||repeat if 5\u009610 or <\u00965, else\u0096 not".encode())
        assert await read(peer, data) == "7"
        assert peer.reports[0].observations[0].note == "repeat if 5\ufffd10 or <\ufffd5, else not"


@pytest.mark.parametrize(
    ("settings", "name_goes_out"),
    [
        ({"received_encoding": "cp1251"}, True),
        ({"encoding": "iso-8859-1", "received_encoding": "cp1251"}, True),
        ({"encoding": "cp1251"}, False),
    ],
)
async def test_code_page_of_results_leaves_orders_alone(tmp_path: Path, settings: dict[str, str], name_goes_out: bool) -> None:
    order = replace(make_order(3), patient=OrderPatient(family="Ünal"))
    async with connected_peer(tmp_path, **settings) as peer:
        assert await read(peer, message("сгусток".encode("cp1251"), unit="")) == "сгусток"
        if name_goes_out:
            await peer.adapter.prepare(order)
        else:
            with pytest.raises(LisRejected):
                await peer.adapter.prepare(order)
