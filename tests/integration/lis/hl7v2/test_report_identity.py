"""On the wire: what one report is, from OBR to OBR of a message and from message to message."""

from pathlib import Path

import pytest

from lab_agent.domain.lab_messages import LabRejection
from tests.harness.hl7_peer import Hl7Peer, connected_peer

L1 = "LAAAAAAAAAAAAAAA"
PID = "PID|1||4711^^^MIS||DOE^J||19800517|F"


def msh(kind: str = "ORU^R01", control_id: str = "1") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|{control_id}|P|2.5.1"


def obr(filler: str, *, placer: str = "", collected: str = "20240517083000+0300", status: str = "F", code: str = "GLU") -> str:
    return f"OBR|1|{placer}|{filler}|{code}|||{collected}|||||||||||||||20240518090000+0300|||{status}"


def obx(code: str, value: str, status: str = "F") -> str:
    return f"OBX|1|NM|{code}^^L||{value}|mmol/L|||||{status}"


def said(peer: Hl7Peer) -> dict[str, list[str]]:
    return {report.report_id: [one.code.code for one in report.observations] for report in peer.reports}


LATER = "20240517093000+0300"
TOLD_APART = {
    "specimen": (obr("F1"), obx("A", "5"), "SPM|1|T1", obr("F1"), obx("B", "9"), "SPM|2|T2"),
    "container": (obr("F1"), obx("A", "5"), "SAC|||T1", obr("F1"), obx("B", "9"), "SAC|||T2"),
    "time": (obr("F1"), obx("A", "5"), obr("F1", collected=LATER), obx("B", "9")),
    "placer": (obr("F1", placer="7-1"), obx("A", "5"), obr("F1", placer="7-2"), obx("B", "9")),
    "placer in ORC": ("ORC|RE|7-1", obr("F1"), obx("A", "5"), "ORC|RE|7-2", obr("F1"), obx("B", "9")),
    "filler of one line": (obr("F1", placer=L1), obx("A", "5"), obr("F2", placer=L1), obx("B", "9")),
}


@pytest.mark.parametrize("what", TOLD_APART)
async def test_what_is_told_apart_is_never_joined(tmp_path: Path, what: str) -> None:
    """Each keeps its own specimen and time; sent in another order they are the same two reports."""
    segments = TOLD_APART[what]
    half = len(segments) // 2
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), PID, *segments) == "AA"
        first = said(peer)
        assert sorted(first.values()) == [["A"], ["B"]]
        peer.inbox.messages.clear()
        assert await peer.send(msh(control_id="2"), PID, *segments[half:], *segments[:half]) == "AA"
        assert said(peer) == first


async def test_each_tube_of_a_curve_keeps_its_time(tmp_path: Path) -> None:
    segments = (obr("F1"), obx("GLU", "5"), "SPM|1|T1", obr("F1", collected=LATER), obx("GLU", "9"), "SPM|2|T2")
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), PID, *segments) == "AA"
        assert [(one.barcode, str(one.effective)[11:16]) for one in peer.reports] == [("T1", "08:30"), ("T2", "09:30")]
        assert [one.report_id for one in peer.reports] == ["F1/GLU/T1", "F1/GLU/T2"], "the time may be corrected"


@pytest.mark.parametrize(
    "segments",
    [
        (obr("F1"), obx("A", "5"), obr("F1"), obx("B", "9")),
        (obr("F1"), obx("A", "5"), "SPM|1|T1", obr("F1"), obx("B", "9"), "SPM|1|T1"),
        (obr("F1"), obx("A", "5"), obr("F1", collected="20240517053000+0000"), obx("B", "9")),
        (obr("F1", collected=""), obx("A", "5"), obr("F1"), obx("B", "9"), "SPM|1|T1"),
        ("ORC|RE||F1", obr(""), obx("A", "5"), obr("F1"), obx("B", "9")),
    ],
)
async def test_pages_of_one_report_are_joined(tmp_path: Path, segments: tuple[str, ...]) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), PID, *segments) == "AA"
        [report] = peer.reports
    assert [one.code.code for one in report.observations] == ["A", "B"]
    assert str(report.effective)[11:16] == "08:30"


async def test_page_that_may_belong_to_either_tube_is_refused(tmp_path: Path) -> None:
    """Two tubes are told apart, and a third OBR says of neither that it is its."""
    segments = (obr("F1"), obx("A", "5"), "SPM|1|T1", obr("F1"), obx("B", "9"), "SPM|2|T2", obr("F1"), obx("C", "7"))
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh(), PID, *segments)
        assert answer.startswith("AE: OBR 3: has the number and the test of other OBR")
        assert sorted(said(peer).values()) == [["A"], ["B"]]


async def test_final_with_a_filler_number_is_the_preliminary_one(tmp_path: Path) -> None:
    """The number comes with the final result; our line key said from the start whose it is."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), PID, obr("", placer=L1, status="P"), obx("A", "5", "P")) == "AA"
        final = (f"ORC|RE|{L1}|F1", obr("F1", placer=L1), obx("A", "5"))
        assert await peer.send(msh(control_id="2"), PID, *final) == "AA"
        assert [report.report_id for report in peer.reports] == [f"{L1}/GLU", f"{L1}/GLU"]


@pytest.mark.parametrize(
    "segments",
    [
        ("NTE|1||fasted", "ORC|RE||F1", obr("F1", code="PANEL"), obr("F1"), obx("A", "5")),
        (obr("F1", code="PANEL"), obr("F1.1") + "||||^F1", obx("A", "5"), obr("F1.2", code="K") + "||||^F1", obx("B", "4")),
        ("SPM|1|T1", "NTE|1||half full", obr("F1", code="PANEL"), obr("F1"), obx("A", "5")),
    ],
)
async def test_heading_of_a_panel_is_left_out(tmp_path: Path, segments: tuple[str, ...]) -> None:
    """A comment on the patient is none of the heading; its tests may have numbers of their own, and name it in OBR-29."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), PID, *segments) == "AA"
        assert len(peer.inbox.skipped) == 1
        assert all(report.observations for report in peer.reports)


CANCELLED = [f"ORC|OC|{L1}|F1||CA", f"ORC|OC|{L1}|F1", f"ORC|SC|{L1}|F1||CA", f"ORC|OD|{L1}|F1||DC"]


@pytest.mark.parametrize("orc", CANCELLED)
@pytest.mark.parametrize("status", ["", "F"])
async def test_order_cancelled_in_orc_is_held(tmp_path: Path, orc: str, status: str) -> None:
    async with connected_peer(tmp_path) as peer:
        assert "has a cancelled order" in await peer.send(msh(), PID, orc, obr("F1", placer=L1, status=status))
        assert not peer.inbox.contents
        both = await peer.send(msh(control_id="2"), PID, orc, obr("F1", placer=L1, status=status), obx("A", "5"))
        assert "has both results and a cancelled order" in both


@pytest.mark.parametrize("orc", CANCELLED)
async def test_order_cancelled_in_orc_is_rejected_where_the_map_says_so(tmp_path: Path, orc: str) -> None:
    mapping = '[tables.order_control]\nOC = "refused"\nOD = "refused"\n[tables.order_status]\nCA = "refused"\nDC = "refused"\n'
    async with connected_peer(tmp_path, mapping=mapping) as peer:
        assert await peer.send(msh(), PID, orc, obr("F1", placer=L1, status="")) == "AA"
        [rejection] = peer.inbox.contents
    assert isinstance(rejection, LabRejection)
    assert [one.line for one in rejection.not_performed] == [L1]
