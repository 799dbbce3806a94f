"""On the wire: whatever the order of its segments, a message's values stay with their order, and none is lost in silence."""

from pathlib import Path

import pytest

from lab_agent.domain.lab_messages import LabRejection
from lab_agent.domain.values import Identifier
from tests.harness.hl7_peer import connected_peer

L1, L2 = "LAAAAAAAAAAAAAAA", "LBBBBBBBBBBBBBBB"


def msh(kind: str, control_id: str = "1") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|{control_id}|P|2.5.1"


def obr(filler: str, code: str = "GLU", *, placer: str = "", status: str = "F") -> str:
    return f"OBR|1|{placer}|{filler}|{code}|||20240517083000+0300|||||||||||||||20240518090000+0300|||{status}"


def obx(value: str) -> str:
    """A result; two of one group have different codes."""
    code = "718-7" if value.endswith(".2") else "2345-7"
    return f"OBX|1|NM|{code}^^LN||{value}|mmol/L|||||F"


PID = "PID|1||4711^^^MIS||DOE^J||19800517|F"
LAW = (  # IHE LAB-29: each specimen, its container, and for each order OBR, ORC, OBX
    msh("OUL^R22^OUL_R22"), PID,
    "SPM|1|T1||SER", "NTE|1||drawn twice", "SAC|||C1", obr("A"), f"ORC|SC|{L1}|A", obx("1.1"), "NTE|1||first", obx("1.2"),
    obr("B"), "ORC|SC||B", obx("2.1"),
    "SPM|2|T2||UR", obr("C"), "NTE|1||of C", obx("3.1"),
)  # fmt: skip
ORU = (
    msh("ORU^R01^ORU_R01"), PID, "PV1|1|O",
    f"ORC|RE|{L1}|A", obr("A"), "NTE|1||drawn twice", obx("1.1"), "NTE|1||first", obx("1.2"), "SPM|1|T1",
    obr("B"), obx("2.1"),
    "ORC|RE||C", "NTE|1||of C", obr("C"), "TQ1|1", obx("3.1"), "SPM|1|T2",
)  # fmt: skip
ORDERS = {
    "law": LAW,
    "law without containers": tuple(one for one in LAW if not one.startswith("SAC")),
    "oru": ORU,
    "r30": (msh("ORU^R30^ORU_R30"), *ORU[1:]),
    "r32": (msh("ORU^R32^ORU_R30"), *ORU[1:]),
    "r21": (
        msh("OUL^R21^OUL_R21"), PID, "SAC|||T1", f"ORC|RE|{L1}|A", obr("A"), "NTE|1||drawn twice", obx("1.1"), "NTE|1||first",
        obx("1.2"), "SAC|||T1", obr("B"), obx("2.1"), "SAC|||T2", "ORC|RE||C", obr("C"), "NTE|1||of C", obx("3.1"),
    ),
    "r23": (
        msh("OUL^R23^OUL_R23"), PID, "SPM|1|", "SAC|||T1", obr("A"), f"ORC|SC|{L1}", "NTE|1||drawn twice", obx("1.1"),
        "NTE|1||first", obx("1.2"), obr("B"), obx("2.1"), "SAC|||T2", obr("C"), obx("3.1"), "NTE|1||of C",
    ),
    "r24": (
        msh("OUL^R24^OUL_R24"), PID, obr("A"), f"ORC|SC|{L1}|A", "NTE|1||drawn twice", "SPM|1|T1", "SAC|||T1", obx("1.1"),
        "NTE|1||first", obx("1.2"), obr("B"), "ORC|SC||B", "SPM|1|T1", obx("2.1"), obr("C"), "SPM|1|T2", "SAC|||T2", obx("3.1"),
        "NTE|1||of C",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
async def test_segments_in_any_order_reach_their_order(tmp_path: Path, name: str) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(*ORDERS[name]) == "AA"
        assert peer.values() == {"A": ["1.1", "1.2"], "B": ["2.1"], "C": ["3.1"]}
        by_number = {report.accession: report for report in peer.reports}
    assert (by_number["A"].lines, by_number["B"].lines, by_number["C"].lines) == ((L1,), (), ())
    assert (by_number["A"].barcode, by_number["C"].barcode) == ("T1", "T2")
    assert by_number["A"].observations[0].note == "drawn twice\nfirst"
    assert by_number["C"].observations[0].note == "of C"


@pytest.mark.parametrize("name", ORDERS)
async def test_dropped_segment_never_moves_a_value(tmp_path: Path, name: str) -> None:
    """Whichever one segment is missing (but an OBR, which nobody would miss): no value gets a number that is not its own."""
    own = {"1.1": "A", "1.2": "A", "2.1": "B", "3.1": "C"}
    async with connected_peer(tmp_path) as peer:
        for place in range(1, len(ORDERS[name])):
            peer.inbox.messages.clear()
            shorter = [one for number, one in enumerate(ORDERS[name]) if number != place]
            answer = await peer.send(*shorter)
            dropped = ORDERS[name][place]
            for number, values in peer.values().items():
                moved = [value for value in values if own[value] != number]
                assert not moved or dropped.startswith("OBR"), (dropped, number, moved)
            if answer == "AA":
                stored = {value for values in peer.values().values() for value in values}
                assert stored == {one.split("|")[5] for one in shorter if one.startswith("OBX")}, dropped


async def test_orc_behind_obr_takes_no_other_results(tmp_path: Path) -> None:
    """A result of an unknown number is not that of the order whose ORC stands before it, behind another OBR."""
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh("OUL^R22"), obr("A"), f"ORC|RE|{L1}", obr("UNKNOWN"), obx("77.7"))
        assert answer.startswith("AE: OBR 1: is final and has no OBX")
        assert peer.values() == {"UNKNOWN": ["77.7"]}
        assert [report.lines for report in peer.reports] == [()]


@pytest.mark.parametrize("before", [(), ("SPM|1|T1",)])
@pytest.mark.parametrize("between", [(), ("TQ1|1",)])
async def test_orc_behind_results_is_not_that_of_the_next_order(
    tmp_path: Path, before: tuple[str, ...], between: tuple[str, ...]
) -> None:
    """An ORC with the number of the OBR before it does not make the results of the next one those of its line."""
    segments = (*before, obr("A"), obx("1.1"), f"ORC|RE|{L1}|A", *between, obr("UNKNOWN"), obx("77.7"))
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh("OUL^R22" if before else "ORU^R01"), *segments)
        assert "behind the results of its OBR" in answer
        assert peer.values() == {"A": ["1.1"], "UNKNOWN": ["77.7"]}
        assert [report.lines for report in peer.reports] == [(), ()]


async def test_trailing_orcs_move_no_values(tmp_path: Path) -> None:
    """Each ORC stands behind its results, without a number: the last one is left over, so none is known to lead."""
    segments = (obr("A"), obx("1.1"), f"ORC|RE|{L1}", obr("B"), obx("2.1"), f"ORC|RE|{L2}")
    async with connected_peer(tmp_path) as peer:
        assert (await peer.send(msh("ORU^R01"), *segments)).startswith("AE: ")
        assert [(report.accession, report.lines) for report in peer.reports] == [("A", ())]


@pytest.mark.parametrize(
    ("kind", "segments"),
    [
        ("OUL^R22", (obr("A"), obx("1.1"), "SPM|1|T1", obr("B"), obx("2.1"), "SPM|2|T2")),
        ("OUL^R21", ("ORC|RE", obr("A"), obx("1.1"), "SAC|||T1", "ORC|RE", obr("B"), obx("2.1"), "SAC|||T2")),
    ],
)
async def test_trailing_specimens_of_oul_move_no_values(tmp_path: Path, kind: str, segments: tuple[str, ...]) -> None:
    """The last specimen is left over: the one before B may be that of A."""
    async with connected_peer(tmp_path) as peer:
        assert (await peer.send(msh(kind), *segments)).startswith("AE: ")
        assert [(report.accession, report.barcode) for report in peer.reports] == [("A", None)]


@pytest.mark.parametrize(
    "segments", [("SPM|1|T1", "SPM|2|T2", obr("B"), obx("2.1")), ("SPM|2|T2", obr("B"), obx("2.1"), f"ORC|RE|{L1}")]
)
async def test_segment_in_the_map_is_left_out_without_an_order(tmp_path: Path, segments: tuple[str, ...]) -> None:
    mapping = '[tables.unused_segments]\nSPM = "all tubes of the rack"\nORC = "nothing"\n'
    async with connected_peer(tmp_path, mapping=mapping) as peer:
        assert await peer.send(msh("OUL^R22"), *segments) == "AA"
        assert [(report.accession, report.lines) for report in peer.reports] == [("B", ())]


@pytest.mark.parametrize("kind", ["ORU^R01", "OUL^R22"])
async def test_orc_belongs_to_obr_with_its_number(tmp_path: Path, kind: str) -> None:
    """A heading without ORC and OBX does not take the ORC of the next OBR, which has the same number."""
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh(kind), obr("A"), obx("1.1"), obr("H", status="A"), f"ORC|RE|{L2}|B", obr("B"), obx("2.1"))
        assert answer == "AA"
        assert {report.accession: report.lines for report in peer.reports}["B"] == (L2,)


async def test_obr_and_orc_naming_different_lines_refused(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh("ORU^R01"), f"ORC|RE|{L1}|A", obr("A", placer=L2), obx("1.1"))
        assert answer.startswith("AE: OBR 1: names different lines of ours")
        assert not peer.reports


async def test_clinics_placer_number_hides_no_line_key(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh("ORU^R01"), f"ORC|RE|{L1}|A", obr("A", placer="12345"), obx("1.1")) == "AA"
        assert peer.reports[0].lines == (L1,)


async def test_results_of_two_patients_keep_theirs(tmp_path: Path) -> None:
    """Each PID begins a patient of its own: what stands before its orders is not that of the others."""
    second = "PID|2|EXT-2|4712^^^MIS&1.2.3&ISO~815^^^&http://mis.example/id&URI||ROE^R||19650101|M"
    visit, mapping = "PV1|1|O" + "|" * 17 + "RAAAAAAAAAAAAAAA", '[results]\norder = ["PV1-19.1"]\n'
    orders = (obr("A"), obx("1.1"), second, obr("B"), obx("2.1"), PID, obr("C"), obx("3.1"))
    async with connected_peer(tmp_path, mapping=mapping) as peer:
        assert await peer.send(msh("ORU^R01"), PID, visit, *orders) == "AA"
        first, other, third = peer.reports
    assert (first.order, other.order, third.order) == ("RAAAAAAAAAAAAAAA", None, None)
    assert first.patient == third.patient
    assert first.patient is not None
    assert (first.patient.gender, first.patient.identifiers) == ("female", (Identifier(system="MIS", value="4711"),))
    assert other.patient is not None
    assert (other.patient.gender, [one.value for one in other.patient.identifiers]) == ("male", ["4712", "815", "EXT-2"])
    assert [one.system for one in other.patient.identifiers] == ["urn:oid:1.2.3", "http://mis.example/id", None]


async def test_one_report_of_two_patients_refused(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh("ORU^R01"), PID, obr("A"), obx("1.1"), PID.replace("4711", "4712"), obr("A"), obx("2.1"))
        assert answer.startswith("AE: OBR 1: another patient of the message has the same report")
        assert not peer.reports


async def test_rejected_specimen_before_orders_rejects_them_all(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        spoilt = "SPM|1|T1" + "|" * 19 + "RH"
        assert await peer.send(msh("OUL^R22"), spoilt, obr("A"), obr("B"), "SPM|2|T2", obr("C"), obx("3.1")) == "AA"
        rejections = [one for one in peer.inbox.contents if isinstance(one, LabRejection)]
    assert [one.accession for one in rejections] == ["A", "B"]
    assert peer.values() == {"C": ["3.1"]}


SKIPPED = {
    "OBX behind an SPM after results": ((obr("A"), obx("1.1"), "SPM|1|T1", obx("2.1")), "OBX (segment 5) behind an SPM", {}),
    "OBX before the first OBR": ((obx("2.1"), obr("B"), obx("1.1")), "OBX (segment 2)", {"B": ["1.1"]}),
    "OBX between ORC and OBR": (("ORC|RE||A", obx("2.1"), obr("A"), obx("1.1")), "OBX (segment 3)", {}),
    "OBX of a specimen": (("SPM|1|T1", obx("2.1"), obr("B"), obx("1.1")), "OBX (segment 3) behind an SPM", {"B": ["1.1"]}),
    "ORC without an OBR": ((obr("B"), obx("1.1"), f"ORC|CA|{L1}"), "ORC (segment 4) without an OBR", {"B": ["1.1"]}),
    "two ORC": (("ORC|RE||A", f"ORC|RE|{L1}", obr("B"), obx("1.1")), "ORC (segment 2) without an OBR", {"B": ["1.1"]}),
    "SPM without an OBR": (("SPM|1|T1", obr("B"), obx("1.1"), "SPM|2|T2"), "SPM (segment 5) without an OBR", {}),
    "Z segment": ((obr("A"), obx("1.1"), "ZRS|critical"), "ZRS (segment 4)", {}),
    "Z segment of the message": (("ZMS|1", obr("B"), obx("1.1")), "ZMS (segment 2)", {"B": ["1.1"]}),
    "ADD in one message": ((obr("A"), obx("1.1"), "ADD|more"), "ADD (segment 4)", {}),
}


@pytest.mark.parametrize("what", SKIPPED)
async def test_skipped_segment_is_an_error_and_kept(tmp_path: Path, what: str) -> None:
    """What nothing reads is answered with AE and kept; the values of its own group are not sent, those of others are."""
    segments, why, values = SKIPPED[what]
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh("ORU^R01"), *segments)
        assert answer.startswith("AE: ")
        assert f"nothing reads {why}" in answer
        assert len(peer.inbox.rejections) == 1
        assert peer.values() == values


@pytest.mark.parametrize(
    ("mapping", "stored"),
    [('[tables.unused_segments]\nZRS = "the analyser\'s own"\n', "A/GLU"), ('[results]\nreport_id = ["ZRS-1"]\n', "critical")],
)
async def test_z_segment_in_the_map_is_no_error(tmp_path: Path, mapping: str, stored: str) -> None:
    async with connected_peer(tmp_path, mapping=mapping) as peer:
        assert await peer.send(msh("ORU^R01"), obr("A"), obx("1.1"), "ZRS|critical") == "AA"
        assert [report.report_id for report in peer.reports] == [stored]


async def test_z_segment_of_one_group_is_not_anothers(tmp_path: Path) -> None:
    async with connected_peer(tmp_path, mapping='[results]\nreport_id = ["ZRS-1"]\n') as peer:
        assert await peer.send(msh("ORU^R01"), obr("A"), obx("1.1"), "ZRS|R-7", obr("B"), obx("2.1")) == "AA"
        assert [report.report_id for report in peer.reports] == ["R-7", "B/GLU"]


async def test_heading_without_results_is_left_out_with_note(tmp_path: Path) -> None:
    """An OBR without OBX says nothing where the results of its line stand under another one; alone it would end its line."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh("ORU^R01", "1"), obr("A", "PANEL", placer=L1), obr("A1", placer=L1), obx("1.1")) == "AA"
        assert peer.values() == {"A1": ["1.1"]}
        assert len(peer.inbox.skipped) == 1
        assert await peer.send(msh("ORU^R01", "3"), obr("C"), obr("C", "GLU", placer=L2), obx("3.1")) == "AA"
        alone = await peer.send(msh("ORU^R01", "2"), obr("B", placer=L2))
        assert alone.startswith("AE: OBR 1: is final and has no OBX")


async def test_specimen_of_oul_leads_after_order_without_one(tmp_path: Path) -> None:
    """In OUL a specimen belongs to the orders behind it, also where the first order has none."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh("OUL^R22"), obr("A"), obx("1.1"), "SPM|1|T1", obr("B"), obx("2.1")) == "AA"
        assert [report.barcode for report in peer.reports] == [None, "T1"]
