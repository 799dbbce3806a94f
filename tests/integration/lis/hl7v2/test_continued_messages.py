"""On the wire: messages that come in several parts are one, or are refused, and nothing of them stays on the disk."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab_agent.lis.hl7v2.results.continued_messages import UNFINISHED
from tests.harness.hl7_peer import connected_peer
from tests.harness.hl7_wire import dialled, until

OBR = "OBR|1|LAAAAAAAAAAAAAAA|F1|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
FULL = "OBX|1|NM|2345-7^Glucose^LN||5.1|mmol/L|||||F"
TEXT = "OBX|2|FT|630-4^Culture^LN||first half, "


def part(control_id: str, after: str = "") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||ORU^R01|{control_id}|P|2.5.1" + (f"||{after}" if after else "")


async def test_continued_message_read_as_one(tmp_path: Path) -> None:
    """Each part is acknowledged, the last one with what the whole says; nothing of it is left on the disk."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(part("1"), "PID|1||4711", OBR, FULL, TEXT, "ADD|", "DSC|P1|F") == "AA"
        assert not peer.inbox.messages
        [kept] = (peer.folder / "continued").iterdir()
        assert b"4711" not in kept.read_bytes()
        assert await peer.send(part("2", "P1"), "ADD|second half||||||F", "NTE|1||a note", "DSC|P2|F") == "AA"
        assert await peer.send(part("3", "P2"), "PID|1||4711", OBR.replace("GLU", "HB"), FULL.replace("5.1", "9.9")) == "AA"
        assert peer.values() == {"F1": ["5.1", "first half, second half", "9.9"]}
        assert peer.reports[0].observations[1].note == "a note"
        assert {report.patient.identifiers[0].value for report in peer.reports if report.patient} == {"4711"}
        assert not list((peer.folder / "continued").iterdir())


async def test_repeated_parts_of_continued_message_answered_again(tmp_path: Path) -> None:
    first, last = (part("1"), OBR, FULL, "DSC|P1|F"), (part("2", "P1"), FULL.replace("2345-7", "718-7"))
    async with connected_peer(tmp_path) as peer:
        assert [await peer.send(*one) for one in (first, first, last, last)] == ["AA"] * 4
        assert len(peer.reports) == 1
        assert not peer.inbox.rejections


async def test_continued_message_with_invalid_part_refused_whole(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(part("1"), OBR, FULL, "DSC|P1|F") == "AA"
        assert [(await peer.send(part("2", "P1"), "ZXX|1"))[:3] for _ in range(2)] == ["AE:", "AE:"]
        assert not peer.reports
        assert len(peer.inbox.rejections) == 1


@pytest.mark.parametrize("pointer", ["P9", "P1"])
async def test_part_without_its_beginning_refused(tmp_path: Path, pointer: str) -> None:
    """An unknown pointer, and that of another connection."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(part("1"), OBR, FULL, "DSC|P1|F") == "AA"
        async with dialled(peer.adapter.ports[1]) as other:
            answer = await replace(peer, wire=other).send(part("2", pointer), OBR.replace("F1", "F2"), FULL)
        assert answer.startswith("AE: ")
        assert "did not come before it" in answer
        assert not peer.reports


async def test_unfinished_message_refused_in_time(tmp_path: Path) -> None:
    """Its parts were acknowledged, so an operator sees it, with all that came; also after a restart."""
    async with connected_peer(tmp_path, frame_timeout=0.01) as peer:
        assert await peer.send(part("1"), "PID|1||4711", OBR, FULL, "DSC|P1|F") == "AA"
        assert len(list((peer.folder / "continued").iterdir())) == 1
        sent = time.time()
    async with connected_peer(tmp_path, frame_timeout=0.01) as peer:
        await until(lambda: time.time() > sent + 0.02)
        for _ in range(2):
            await peer.adapter.collect()
            assert list(peer.inbox.rejections.values()) == [UNFINISHED]
            assert b"PID|1||4711" in next(iter(peer.inbox.raw.values()))
            assert not list((peer.folder / "continued").iterdir())


async def test_continued_message_has_a_bound(tmp_path: Path) -> None:
    async with connected_peer(tmp_path, max_message_bytes=2000) as peer:
        long = "NTE|1||" + "x" * 800
        assert await peer.send(part("1"), OBR, FULL, long, "DSC|P1|F") == "AA"
        assert await peer.send(part("2", "P1"), long, "DSC|P2|F") == "AA"
        assert "too long" in await peer.send(part("3", "P2"), long)
        assert not peer.reports
