"""On the wire: empty values, types and codes of the LIS's own, quality control, and messages that come in several."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.domain.ids import LineKey, OrderKey, ResourceId
from lab_agent.domain.lab_messages import LabReport, ReportStatus
from lab_agent.domain.records import LineRecord
from lab_agent.domain.report_coverage import OrderCodes, determine_coverage
from lab_agent.domain.state_machines import LineState
from lab_agent.lis.hl7v2.results.continued_messages import UNFINISHED
from tests.harness.hl7_peer import connect_peer, connected_peer
from tests.harness.hl7_wire import until

L1 = "LAAAAAAAAAAAAAAA"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
OBR = f"OBR|1|{L1}|F1|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
FULL = "OBX|1|NM|2345-7^Glucose^LN||5.1|mmol/L|||||F"
EMPTY = "OBX|2|NM|2823-3^Potassium^LN|||mmol/L|||||F"


def msh(control_id: str = "1", *, kind: str = "ORU^R01", mode: str = "P", rest: str = "") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|{control_id}|{mode}|2.5.1{rest}"


# --- empty values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [("", ""), ("|||mmol", '||""|mmol'), ("|F", "|"), ("|F", "|P")])
async def test_empty_value_is_left_out_with_note(tmp_path: Path, change: tuple[str, str]) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, FULL, EMPTY.replace(*change, 1)) == "AA"
        assert peer.values() == {"F1": ["5.1"]}
        assert list(peer.inbox.skipped.values()) == ["OBX 2 has no value"]


async def test_comment_of_empty_value_is_kept(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, EMPTY, "NTE|1||haemolysed", FULL) == "AA"
        assert peer.reports[0].observations[0].note == "Potassium: haemolysed"


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ((EMPTY,), "none of its OBX has a value"),
        ((EMPTY, "NTE|1||haemolysed"), "none of its OBX has a value"),
        ((FULL, EMPTY.replace("|F", "|C")), "OBX 2 has no value"),
        ((FULL, FULL.replace("|F", "|X")), "OBX 2 has the status X"),
        (("OBX|1|ED|PDF||^application^PDF^Base64^JVBERi0xLjQK||||||F", "NTE|1||of the PDF"), "has a note"),
    ],
)
async def test_nothing_to_say_is_refused(tmp_path: Path, segments: tuple[str, ...], why: str) -> None:
    """A report that would be empty, a correction to nothing, and a comment without a value are for an operator."""
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh(), OBR, *segments)
        assert answer.startswith("AE: ")
        assert why in answer
        assert not peer.reports


async def test_empty_value_refused_if_the_map_says_so(tmp_path: Path) -> None:
    async with connected_peer(tmp_path, mapping='[results]\nempty_value = "refuse"\n') as peer:
        assert "OBX 2 has no value" in await peer.send(msh(), OBR, FULL, EMPTY)
        assert not peer.reports


async def test_empty_line_of_text_parts_paragraphs(tmp_path: Path) -> None:
    lines = [f"OBX|{n}|TX|630-4^Culture^LN|1|{text}||||||F" for n, text in enumerate(("one", "", "two", ""), 1)]
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, *lines) == "AA"
        assert peer.values() == {"F1": ["one\n\ntwo"]}
        assert list(peer.inbox.skipped.values()) == ["OBX 4 has no value"]


# --- types and codes of the LIS's own ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "mapping"), [("", '"" = "NM"'), ("num", 'NUM = "NM"'), ("XX", 'XX = "NM"')])
async def test_value_type_by_the_map(tmp_path: Path, kind: str, mapping: str) -> None:
    obx = FULL.replace("|NM|", f"|{kind}|")
    async with connected_peer(tmp_path) as peer:
        assert "unsupported type" in await peer.send(msh(), OBR, obx)
    async with connected_peer(tmp_path, mapping=f"[tables.value_types]\n{mapping}\n") as peer:
        assert await peer.send(msh(), OBR, obx) == "AA"
        assert peer.reports[0].observations[0].value_quantity is not None


@pytest.mark.parametrize("code", ["2345-7^Glucose^LN", "WEIRD^Glucose^99LIS^2345-7^Glucose^LN"])
async def test_test_code_by_the_map(tmp_path: Path, code: str) -> None:
    obr = OBR.replace(L1, "").replace("|GLU|", f"|{code}|")
    async with connected_peer(tmp_path, mapping='[tables.items]\n"2345-7" = "A09.05"\n') as peer:
        assert await peer.send(msh(), obr, FULL) == "AA"
        assert (peer.reports[0].items, peer.reports[0].completes) == (("A09.05",), None)


@pytest.mark.parametrize(
    "change", [("|GLU|", "|CHOL|"), ("|||F", "|||F|GLU^1"), (L1, "LBBBBBBBBBBBBBBB"), ("|||F", "|||F||||P1^A")]
)
async def test_one_number_parts_are_told_apart(tmp_path: Path, change: tuple[str, str]) -> None:
    """Two tests, two children of a culture, or two lines under one filler number are two reports, and stay so."""
    async with connected_peer(tmp_path, mapping="[results]\nitem = []\n") as peer:
        other = OBR.replace(*change)
        assert await peer.send(msh("1"), OBR, FULL, other, FULL.replace("5.1", "6.2")) == "AA"
        assert await peer.send(msh("2"), other, FULL.replace("5.1", "6.3")) == "AA"
        first, second, third = peer.reports
    assert first.report_id != second.report_id == third.report_id
    assert [len(report.observations) for report in (first, second, third)] == [1, 1, 1]


async def test_number_without_test_completes_what_it_means(tmp_path: Path) -> None:
    """Where neither a line nor a test is known, a final report completes what its number means, not the whole order."""
    async with connected_peer(tmp_path, mapping="[results]\nitem = []\n") as peer:
        assert await peer.send(msh(), OBR.replace(L1, ""), FULL) == "AA"
        [report] = peer.reports
    assert (report.status, report.items, report.completes) == (ReportStatus.FINAL, (), ("F1",))


@pytest.mark.parametrize(("numbers", "completed"), [(("F1", "F1"), [(), ()]), (("F1", "F2"), [("L1",), ("L2",)])])
async def test_first_result_ends_no_other_line(
    tmp_path: Path, numbers: tuple[str, str], completed: list[tuple[str, ...]]
) -> None:
    """One number for an order of two lines, and tests by codes that nobody mapped: the first result ends neither line."""
    codes = OrderCodes({"001": [LineKey("L1")], "002": [LineKey("L2")]})
    accepted = LineRecord(key=LineKey(""), order=OrderKey("R"), task_id=ResourceId("T"), state=LineState.ACCEPTED, changed_at=NOW)
    order = [replace(accepted, key=LineKey(f"L{place}"), accession=number) for place, number in enumerate(numbers, 1)]
    async with connected_peer(tmp_path, mapping="[results]\nitem = []\n") as peer:
        for place, number in enumerate(numbers, 1):
            obr = OBR.replace(L1, "").replace("F1", number).replace("GLU", f"LIS-{place}")
            assert await peer.send(msh(str(place)), obr, FULL) == "AA"
        found = [determine_coverage(report, order, codes) for report in peer.reports]
    assert [coverage.completes for coverage in found] == completed


# --- quality control --------------------------------------------------------------------------------------------------------

MINDRAY = '[[results.ignore]]\npath = "MSH-16"\nvalue = "2"\n[[results.ignore]]\npath = "MSH-11"\nvalue = "Q"\n'
SPECIMEN = '[[results.ignore]]\npath = "SPM-11"\nvalue = "Q"\n'


@pytest.mark.parametrize("header", [msh(mode="Q"), msh(mode="Q", kind="QCN^J01")])
async def test_quality_control_message_acknowledged_not_read(tmp_path: Path, header: str) -> None:
    async with connected_peer(tmp_path, mapping=MINDRAY) as peer:
        assert await peer.send(header, "ZQC|1", "OBX|1|NM|x") == "AA"
        assert (peer.inbox.messages, peer.inbox.rejections) == ({}, {})
        assert list(peer.inbox.skipped.values()) == ["ignored, because MSH-11 is Q"]
        assert await peer.send(msh("2"), OBR, FULL) == "AA"
        assert len(peer.reports) == 1


async def test_quality_control_by_application_ack_type(tmp_path: Path) -> None:
    async with connected_peer(tmp_path, mapping=MINDRAY, answer_results="original") as peer:
        assert await peer.send(msh(rest="||||2"), OBR, FULL) == "AA"
        assert list(peer.inbox.skipped.values()) == ["ignored, because MSH-16 is 2"]


async def test_quality_control_specimen_ignored_beside_results(tmp_path: Path) -> None:
    control = "SPM|1|QC1^||SER" + "|" * 7 + "Q"
    async with connected_peer(tmp_path, mapping=SPECIMEN) as peer:
        message = (control, OBR.replace("F1", "QC"), "OBX|1|XX|level", "SPM|2|T1||SER" + "|" * 7 + "P", OBR, FULL)
        assert await peer.send(msh(kind="OUL^R22"), *message) == "AA"
        assert peer.values() == {"F1": ["5.1"]}
        assert list(peer.inbox.skipped.values()) == ["ignored, because SPM-11 is Q"]


# --- continued messages -----------------------------------------------------------------------------------------------------

TEXT = "OBX|2|FT|630-4^Culture^LN||first half, "


def part(control_id: str, after: str = "") -> str:
    return msh(control_id, rest=f"||{after}" if after else "")


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
        assert [await peer.send(*one) for one in (first, first, last, last)] == ["AA", "AA", "AA", "AA"]
        assert len(peer.reports) == 1
        assert not peer.inbox.rejections


async def test_continued_message_with_invalid_part_refused_whole(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(part("1"), OBR, FULL, "DSC|P1|F") == "AA"
        last = (part("2", "P1"), "ZXX|1")
        assert [(await peer.send(*last))[:3] for _ in range(2)] == ["AE:", "AE:"]
        assert not peer.reports
        assert len(peer.inbox.rejections) == 1


@pytest.mark.parametrize("strange", [("P9", "an unknown pointer"), ("P1", "the pointer of another connection")])
async def test_part_without_its_beginning_refused(tmp_path: Path, strange: tuple[str, str]) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(part("1"), OBR, FULL, "DSC|P1|F") == "AA"
        other = await connect_peer(peer.adapter, peer.inbox, tmp_path)
        answer = await other.send(part("2", strange[0]), OBR.replace("F1", "F2"), FULL)
        await other.close()
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
        await peer.adapter.collect()
        assert list(peer.inbox.rejections.values()) == [UNFINISHED]
        assert b"PID|1||4711" in next(iter(peer.inbox.raw.values()))
        assert not list((peer.folder / "continued").iterdir())
        await peer.adapter.collect()
        assert len(peer.inbox.rejections) == 1


async def test_continued_message_has_a_bound(tmp_path: Path) -> None:
    async with connected_peer(tmp_path, max_message_bytes=2000) as peer:
        long = ("NTE|1||" + "x" * 800,)
        assert await peer.send(part("1"), OBR, FULL, *long, "DSC|P1|F") == "AA"
        assert await peer.send(part("2", "P1"), *long, "DSC|P2|F") == "AA"
        assert "too long" in await peer.send(part("3", "P2"), *long)
        assert not [one for one in peer.inbox.contents if isinstance(one, LabReport)]
