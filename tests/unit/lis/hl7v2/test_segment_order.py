"""Whatever the order of its segments, a message's values stay with their order and report, and none is lost in silence."""

from pathlib import Path

import pytest

from lab_agent.lis.lab_messages import LabRejection
from lab_agent.shared.values import Identifier
from tests.harness.hl7_peer import Case, read_message

L1, L2 = "LAAAAAAAAAAAAAAA", "LBBBBBBBBBBBBBBB"
PID = "PID|1||4711^^^MIS||DOE^J||19800517|F"
LATER = "20240517093000+0300"


def msh(kind: str = "ORU^R01", control_id: str = "1") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|{control_id}|P|2.5.1"


def obr(filler: str, code: str = "GLU", *, placer: str = "", collected: str = "20240517083000+0300", status: str = "F") -> str:
    return f"OBR|1|{placer}|{filler}|{code}|||{collected}|||||||||||||||20240518090000+0300|||{status}"


def obx(value: str) -> str:
    """A result; two of one group have different codes."""
    code = "718-7" if value.endswith(".2") else "2345-7"
    return f"OBX|1|NM|{code}^^LN||{value}|mmol/L|||||F"


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


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ORDERS if name not in {"law", "oru"}]


@pytest.mark.parametrize("name", ["law", "oru", *OTHERS])
async def test_segments_in_any_order_reach_their_order(tmp_path: Path, name: str) -> None:
    """Whichever one segment is missing (but an OBR, which nobody would miss): no value gets a number that is not its own."""
    read = await read_message(tmp_path, *ORDERS[name])
    barcode = "" if name in {"oru", "r30", "r32"} else "/T1"
    assert (read.said, read.refused) == (f"A@LA/T1: 1.1, 1.2; B{barcode}: 2.1; C/T2: 3.1", "")
    assert [read.reports[place].observations[0].note for place in (0, 2)] == ["drawn twice\nfirst", "of C"]
    own = {"A": {"1.1", "1.2"}, "B": {"2.1"}, "C": {"3.1"}}
    for place in range(1, len(ORDERS[name])):
        shorter = [one for number, one in enumerate(ORDERS[name]) if number != place]
        read, dropped = await read_message(tmp_path, *shorter), ORDERS[name][place]
        values = {report.accession: {str(one.value_quantity.value) for one in report.observations} for report in read.reports}  # type: ignore[union-attr]
        if not dropped.startswith("OBR"):
            assert all(found <= own.get(str(number), set()) for number, found in values.items()), (dropped, values)
        if not read.refused:
            sent = {one.split("|")[5] for one in shorter if one.startswith("OBX")}
            assert set().union(*values.values()) == sent, dropped


OUL = msh("OUL^R22")
UNUSED = '[tables.unused_segments]\nSPM = "all tubes of the rack"\nORC = "nothing"\nZRS = "the analyser\'s own"\n'
Z_ID = '[results]\nreport_id = ["ZRS-1"]\n'
UNKNOWN = (obr("UNKNOWN"), obx("77.7"))
BEHIND = "behind the results of its OBR"
CASES = {
    # a result of an unknown number is not that of the order whose ORC stands before it, behind another OBR
    "ORC behind OBR": Case((OUL, obr("A"), f"ORC|RE|{L1}", *UNKNOWN), "UNKNOWN: 77.7", "OBR 1: is final and has no OBX"),
    "ORC behind results": Case((msh(), obr("A"), obx("1.1"), f"ORC|RE|{L1}|A", *UNKNOWN), "A: 1.1; UNKNOWN: 77.7", BEHIND),
    "ORC, TQ1 behind results": Case(
        (OUL, "SPM|1|T1", obr("A"), obx("1.1"), f"ORC|RE|{L1}|A", "TQ1|1", *UNKNOWN), "A/T1: 1.1; UNKNOWN/T1: 77.7", BEHIND
    ),
    # each stands behind its results: the last one is left over, so none is known to lead
    "trailing ORC": Case(
        (msh(), obr("A"), obx("1.1"), f"ORC|RE|{L1}", obr("B"), obx("2.1"), f"ORC|RE|{L2}"), "A: 1.1", "without an OBR"
    ),
    "trailing SPM": Case((OUL, obr("A"), obx("1.1"), "SPM|1|T1", obr("B"), obx("2.1"), "SPM|2|T2"), "A: 1.1", "without an OBR"),
    "trailing SAC": Case(
        (msh("OUL^R21"), "ORC|RE", obr("A"), obx("1.1"), "SAC|||T1", "ORC|RE", obr("B"), obx("2.1"), "SAC|||T2"), "A: 1.1", "SAC"
    ),
    "SPM unused": Case((OUL, "SPM|1|T1", "SPM|2|T2", obr("B"), obx("2.1")), "B/T2: 2.1", mapping=UNUSED),
    "ORC unused": Case((OUL, "SPM|2|T2", obr("B"), obx("2.1"), f"ORC|RE|{L1}"), "B/T2: 2.1", mapping=UNUSED),
    # a heading without ORC and OBX does not take the ORC of the next OBR, which has the same number
    **{
        f"ORC of its number {kind}": Case(
            (msh(kind), obr("A"), obx("1.1"), obr("H", status="A"), f"ORC|RE|{L2}|B", obr("B"), obx("2.1")),
            "A: 1.1; H: ; B@LB: 2.1",
        )
        for kind in ("ORU^R01", "OUL^R22")
    },
    "two lines": Case((msh(), f"ORC|RE|{L1}|A", obr("A", placer=L2), obx("1.1")), "", "OBR 1: names different lines of ours"),
    "clinic's placer": Case((msh(), f"ORC|RE|{L1}|A", obr("A", placer="12345"), obx("1.1")), "A@LA: 1.1"),
    "one report of two patients": Case(
        (msh(), PID, obr("A"), obx("1.1"), PID.replace("4711", "4712"), obr("A"), obx("2.1")),
        "", "OBR 1: another patient of the message has the same report",
    ),
    "SPM after an order without one": Case((OUL, obr("A"), obx("1.1"), "SPM|1|T1", obr("B"), obx("2.1")), "A: 1.1; B/T1: 2.1"),
    # what nothing reads is refused and kept; the values of its own group are not sent, those of others are
    "OBX behind SPM": Case((msh(), obr("A"), obx("1.1"), "SPM|1|T1", obx("2.1")), "", "reads OBX (segment 5) behind an SPM"),
    "OBX before OBR": Case((msh(), obx("2.1"), obr("B"), obx("1.1")), "B: 1.1", "nothing reads OBX (segment 2)"),
    "OBX after ORC": Case((msh(), "ORC|RE||A", obx("2.1"), obr("A"), obx("1.1")), "", "nothing reads OBX (segment 3)"),
    "OBX of SPM": Case((msh(), "SPM|1|T1", obx("2.1"), obr("B"), obx("1.1")), "B/T1: 1.1", "OBX (segment 3) behind an SPM"),
    "ORC alone": Case((msh(), obr("B"), obx("1.1"), f"ORC|CA|{L1}"), "B: 1.1", "nothing reads ORC (segment 4) without an OBR"),
    "two ORC": Case(
        (msh(), "ORC|RE||A", f"ORC|RE|{L1}", obr("B"), obx("1.1")), "B@LA: 1.1", "nothing reads ORC (segment 2) without an OBR"
    ),
    "SPM alone": Case((msh(), "SPM|1|T1", obr("B"), obx("1.1"), "SPM|2|T2"), "", "nothing reads SPM (segment 5) without an OBR"),
    "Z": Case((msh(), obr("A"), obx("1.1"), "ZRS|critical"), "", "nothing reads ZRS (segment 4)"),
    "Z of the message": Case((msh(), "ZMS|1", obr("B"), obx("1.1")), "B: 1.1", "nothing reads ZMS (segment 2)"),
    "ADD": Case((msh(), obr("A"), obx("1.1"), "ADD|more"), "", "nothing reads ADD (segment 4)"),
    "Z unused": Case((msh(), obr("A"), obx("1.1"), "ZRS|critical"), "A: 1.1", mapping=UNUSED),
    # an OBR without OBX says nothing where the results of its line stand under another one; alone it would end its line
    "heading": Case((msh(), obr("A", "P", placer=L1), obr("A1", placer=L1), obx("1.1")), "A1@LA: 1.1", "", "has no OBX"),
    "heading of a number": Case((msh(), obr("C"), obr("C", placer=L2), obx("3.1")), "C@LB: 3.1", "", "has no OBX"),
    "heading behind a note": Case(
        (msh(), PID, "NTE|1||fasted", "ORC|RE||F", obr("F", "PANEL"), obr("F"), obx("1.1")), "F: 1.1", "", "has no OBX"
    ),
    "heading by OBR-29": Case(
        (msh(), PID, obr("F", "PANEL"), obr("F.1") + "||||^F", obx("1.1"), obr("F.2", "K") + "||||^F", obx("2.1")),
        "F.1: 1.1; F.2: 2.1", "", "has no OBX",
    ),
    "heading behind SPM": Case(
        (msh(), PID, "SPM|1|T1", "NTE|1||half full", obr("F", "PANEL"), obr("F"), obx("1.1")), "F/T1: 1.1", "", "has no OBX"
    ),
    "final alone": Case((msh(), obr("B", placer=L2)), "", "OBR 1: is final and has no OBX"),
    # two tubes are told apart, and a third OBR says of neither that it is its
    "page of either tube": Case(
        (msh(), obr("F"), obx("1.1"), "SPM|1|T1", obr("F"), obx("2.1"), "SPM|2|T2", obr("F"), obx("3.1")),
        "F/T1: 1.1; F/T2: 2.1", "OBR 3: has the number and the test of other OBR",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_segment_stays_with_its_order_or_is_refused(tmp_path: Path, name: str) -> None:
    await CASES[name].check(tmp_path)


async def test_results_of_two_patients_keep_theirs(tmp_path: Path) -> None:
    """Each PID begins a patient of its own: what stands before its orders is not that of the others."""
    second = "PID|2|EXT-2|4712^^^MIS&1.2.3&ISO~815^^^&http://mis.example/id&URI||ROE^R||19650101|M"
    visit, mapping = "PV1|1|O" + "|" * 17 + "RAAAAAAAAAAAAAAA", '[results]\norder = ["PV1-19.1"]\n'
    orders = (obr("A"), obx("1.1"), second, obr("B"), obx("2.1"), PID, obr("C"), obx("3.1"))
    first, other, third = (await read_message(tmp_path, msh(), PID, visit, *orders, mapping=mapping)).reports
    assert (first.order, other.order, third.order) == ("RAAAAAAAAAAAAAAA", None, None)
    assert first.patient == third.patient
    assert first.patient is not None
    assert (first.patient.gender, first.patient.identifiers) == ("female", (Identifier(system="MIS", value="4711"),))
    assert other.patient is not None
    assert (other.patient.gender, [one.value for one in other.patient.identifiers]) == ("male", ["4712", "815", "EXT-2"])
    assert [one.system for one in other.patient.identifiers] == ["urn:oid:1.2.3", "http://mis.example/id", None]


async def test_rejected_specimen_before_orders_rejects_them_all(tmp_path: Path) -> None:
    spoilt = "SPM|1|T1" + "|" * 19 + "RH"
    read = await read_message(tmp_path, OUL, spoilt, obr("A"), obr("B"), "SPM|2|T2", obr("C"), obx("3.1"))
    assert [part.content.accession for part in read.parts if isinstance(part.content, LabRejection)] == ["A", "B"]
    assert (read.said, read.refused) == ("C/T2: 3.1", "")


@pytest.mark.parametrize(
    ("segments", "mapping", "ids"),
    [
        ((obr("A"), obx("1.1"), "ZRS|R-7", obr("B"), obx("2.1")), Z_ID, ["R-7", "B/GLU"]),
        # the time may be corrected, and the line key is known before the laboratory's number
        ((obr("F"), obx("1.1"), "SPM|1|T1", obr("F", collected=LATER), obx("2.1"), "SPM|2|T2"), "", ["F/GLU/T1", "F/GLU/T2"]),
        ((obr("", placer=L1, status="P"), obx("1.1")), "", [f"{L1}/GLU"]),
        ((f"ORC|RE|{L1}|F", obr("F", placer=L1), obx("1.1")), "", [f"{L1}/GLU"]),
    ],
)
async def test_report_has_the_name_of_its_group(tmp_path: Path, segments: tuple[str, ...], mapping: str, ids: list[str]) -> None:
    assert [report.report_id for report in (await read_message(tmp_path, msh(), *segments, mapping=mapping)).reports] == ids


A, B = obx("1.1"), obx("2.2")
NO_ITEM = "[results]\nitem = []\n"
APART = [
    (obr("F"), A, "SPM|1|T1", obr("F"), B, "SPM|2|T2"),
    (obr("F"), A, "SAC|||T1", obr("F"), B, "SAC|||T2"),
    (obr("F"), A, obr("F", collected=LATER), B),
    (obr("F", placer="7-1"), A, obr("F", placer="7-2"), B),
    ("ORC|RE|7-1", obr("F"), A, "ORC|RE|7-2", obr("F"), B),
    (obr("F1", placer=L1), A, obr("F2", placer=L1), B),
    *((obr("F", placer=L1), A, obr("F", placer=L1).replace(*change), B)  # two tests, two children of a culture, two lines
      for change in (("|GLU|", "|CHOL|"), ("|||F", "|||F|GLU^1"), (L1, L2), ("|||F", "|||F||||P1^A"))),
]  # fmt: skip


@pytest.mark.parametrize("segments", APART)
@pytest.mark.parametrize("mapping", ["", NO_ITEM])
async def test_what_is_told_apart_is_never_joined(tmp_path: Path, segments: tuple[str, ...], mapping: str) -> None:
    """Each keeps its own specimen and time; sent in another order they are the same two reports."""
    half = len(segments) // 2
    found = []
    for sent in (segments, segments[half:] + segments[:half]):
        read = await read_message(tmp_path, msh(), PID, *sent, mapping=mapping)
        assert read.refused == ""
        found.append({report.report_id: [one.code.code for one in report.observations] for report in read.reports})
    assert found[0] == found[1]
    assert sorted(found[0].values()) == [["2345-7"], ["718-7"]]
    if segments in APART[-4:]:  # and alone, in a message of its own
        [report] = (await read_message(tmp_path, msh(), *segments[half:], mapping=mapping)).reports
        assert report.report_id == [*found[0]][1]


async def test_each_tube_of_a_curve_keeps_its_time(tmp_path: Path) -> None:
    segments = (obr("F"), A, "SPM|1|T1", obr("F", collected=LATER), B, "SPM|2|T2")
    reports = (await read_message(tmp_path, msh(), *segments)).reports
    assert [(one.barcode, str(one.effective)[11:16]) for one in reports] == [("T1", "08:30"), ("T2", "09:30")]


@pytest.mark.parametrize(
    "segments",
    [
        (obr("F"), A, obr("F"), B),
        (obr("F"), A, "SPM|1|T1", obr("F"), B, "SPM|1|T1"),
        (obr("F"), A, obr("F", collected="20240517053000+0000"), B),
        (obr("F", collected=""), A, obr("F"), B, "SPM|1|T1"),
        ("ORC|RE||F", obr(""), A, obr("F"), B),
    ],
)
async def test_pages_of_one_report_are_joined(tmp_path: Path, segments: tuple[str, ...]) -> None:
    [report] = (await read_message(tmp_path, msh(), PID, *segments)).reports
    assert [one.code.code for one in report.observations] == ["2345-7", "718-7"]
    assert str(report.effective)[11:16] == "08:30"


CANCELLED = [f"ORC|OC|{L1}|F1||CA", f"ORC|OC|{L1}|F1", f"ORC|SC|{L1}|F1||CA", f"ORC|OD|{L1}|F1||DC"]


@pytest.mark.parametrize("orc", CANCELLED)
async def test_order_cancelled_in_orc_is_held_or_rejected(tmp_path: Path, orc: str) -> None:
    for status in ("", "F"):
        order = (msh(), PID, orc, obr("F1", placer=L1, status=status))
        await Case(order, "", "has a cancelled order").check(tmp_path)
        await Case((*order, obx("1.1")), "", "has both results and a cancelled order").check(tmp_path)
    mapping = '[tables.order_control]\nOC = "refused"\nOD = "refused"\n[tables.order_status]\nCA = "refused"\nDC = "refused"\n'
    [part] = (await read_message(tmp_path, msh(), PID, orc, obr("F1", placer=L1, status=""), mapping=mapping)).parts
    assert isinstance(part.content, LabRejection)
    assert [one.line for one in part.content.not_performed] == [L1]
