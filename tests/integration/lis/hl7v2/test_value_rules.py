"""On the wire: what analysers write for a number, flags and times of values, and OBX that are one observation after all."""

from pathlib import Path

import pytest

from tests.harness.hl7_peer import connected_peer, value_text

L1 = "LAAAAAAAAAAAAAAA"
OBR = f"OBR|1|{L1}|F1|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
GLU, K = "2345-7^Glucose^LN", "2823-3^Potassium^LN"


def msh(kind: str = "ORU^R01") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|1|P|2.5.1"


def obx(code: str = GLU, value: str = "5.1", unit: str = "mmol/L", *, kind: str = "NM", **fields: str) -> str:
    """An OBX; `fields` by number: `_4` is the sub-id, `_8` the flag, `_11` the status, `_14` the time."""
    given = {"_2": kind, "_3": code, "_5": value, "_6": unit, "_11": "F", **fields}
    return "OBX|1|" + "|".join(given.get(f"_{number}", "") for number in range(2, 22)).rstrip("|")


# --- numbers that are none --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"), [("****", "****"), ("----", "----"), ("neg", "neg"), ("5.", "5. mmol/L"), ("> range", "> range")]
)
async def test_text_for_a_number_is_read_as_text(tmp_path: Path, text: str, shown: str) -> None:
    """One value out of range must not keep the rest of a blood count from the clinic."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(), obx(K, text)) == "AA"
        assert peer.values() == {"F1": ["5.1", shown]}
        assert list(peer.inbox.skipped.values()) == ["OBX 2 is no number (NM), and is read as a text"]


@pytest.mark.parametrize("text", ["4,9", "<4,9", "1,234.5", "1 234,5"])
async def test_number_in_another_notation_is_refused(tmp_path: Path, text: str) -> None:
    """The map mends it; as a text it would go out as one for ever."""
    async with connected_peer(tmp_path) as peer:
        assert "OBX 2 has an invalid number" in await peer.send(msh(), OBR, obx(), obx(K, text))
        assert not peer.reports


# --- flags ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["A", ">", "^Lipaemic"])
async def test_flag_of_an_empty_value_may_be_its_result(tmp_path: Path, field: str) -> None:
    async with connected_peer(tmp_path) as peer:
        assert "OBX 2 has no value, and a flag" in await peer.send(msh(), OBR, obx(), obx(K, "", _8=field))
        assert not peer.reports


async def test_flag_of_a_test_not_done_is_said(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(), obx(K, "", _8="^Lipaemic", _11="X")) == "AA"
        assert [one.note for one in peer.reports[0].observations] == ["Potassium: Lipaemic"]
        assert list(peer.inbox.skipped.values()) == ["OBX 2 has no value"]


@pytest.mark.parametrize(
    ("field", "flags", "note"),
    [("^High", ("H",), None), ("^Susceptible", ("S",), None), ("^Lipaemic", (), "Lipaemic"), ("H^High", ("H",), None)],
)
async def test_flag_without_a_code(tmp_path: Path, field: str, flags: tuple[str, ...], note: str | None) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(_8=field)) == "AA"
        [one] = peer.reports[0].observations
        assert (one.flags, one.note) == (flags, note)


# --- times of values --------------------------------------------------------------------------------------------------------

CODES = "2345-7^Glucose^LN^G0^fasting^L", "2345-7^Glucose^LN^G60^after 60 min^L"
CURVE = (obx(CODES[0], _14="20240517080000+0300"), obx(CODES[1], _14="20240517090000+0300"))
ANALYSER = (obx(_14="20240517080000+0300"), obx(K, _14="20240517080100+0300"))


async def test_times_of_values_that_differ_are_refused(tmp_path: Path) -> None:
    """A curve in one OBR: the report has one time, and the clinic would read the same for all of its values."""
    async with connected_peer(tmp_path) as peer:
        assert "different times" in await peer.send(msh(), OBR, *CURVE)
        assert not peer.reports


async def test_times_of_values_are_collection_times_where_there_is_no_other(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert "no collection time" in await peer.send(msh(), OBR.replace("20240517083000+0300", ""), *ANALYSER)
        assert not peer.reports


async def test_times_of_values_are_said_if_the_map_asks(tmp_path: Path) -> None:
    async with connected_peer(tmp_path, mapping='[results]\nvalue_times = "note"\n') as peer:
        assert await peer.send(msh(), OBR, *CURVE) == "AA"
        notes = [one.note for one in peer.reports[0].observations]
    assert notes == [f"time of this value: 2024-05-17 0{hour}:00+03:00" for hour in (8, 9)]


IGNORED = '[results]\nvalue_times = "ignore"\n'


@pytest.mark.parametrize(("mapping", "values"), [(IGNORED, CURVE), ("", ANALYSER), ("", (CURVE[0], CURVE[0]))])
async def test_times_of_values_are_left_out(tmp_path: Path, mapping: str, values: tuple[str, ...]) -> None:
    async with connected_peer(tmp_path, mapping=mapping) as peer:
        assert await peer.send(msh(), OBR, *values) == "AA"
        assert {one.note for one in peer.reports[0].observations} == {None}


# --- one observation in several OBX -----------------------------------------------------------------------------------------


async def test_identical_values_are_one(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(), "NTE|1||a note", obx().replace("|1|", "|2|", 1)) == "AA"
        assert peer.values() == {"F1": ["5.1"]}
        assert list(peer.inbox.skipped.values()) == ["OBX 2 is the same as OBX 1"]


async def test_withdrawn_value_with_its_correction(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(value="9.9", _11="W"), obx(_11="C")) == "AA"
        assert peer.values() == {"F1": ["5.1"]}
        assert list(peer.inbox.skipped.values()) == ["OBX 1 (W) is corrected by OBX 2"]


async def test_withdrawn_value_alone_needs_an_operator(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert "the status W" in await peer.send(msh(), OBR, obx(K, _11="W"), obx(_11="C"))


@pytest.mark.parametrize("kind", ["ST", "TX", "FT"])
async def test_text_behind_a_value_is_an_observation(tmp_path: Path, kind: str) -> None:
    """A comment would not be sent, and nothing tells one from a second value."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(), obx(value="taken after a meal", unit="", kind=kind), obx(K)) == "AA"
        assert [(one.id, value_text(one), one.note) for one in peer.reports[0].observations] == [
            (None, "5.1", None),
            ("2345-7/text", "taken after a meal", None),
            (None, "5.1", None),
        ]


async def test_text_in_lines_of_type_st_is_one(tmp_path: Path) -> None:
    lines = ["The film shows moderate anisocytosis and", "some target cells.", "No blasts."]
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, *(obx("FILM^Film^L", line, "", kind="ST") for line in lines)) == "AA"
        assert peer.values() == {"F1": ["\n".join(lines)]}


@pytest.mark.parametrize(
    "values",
    [
        [obx(value="5.1"), obx(value="5.3")],
        [obx("V^Virus^L", "Not detected", "", kind="ST"), obx("V^Virus^L", "Detected", "", kind="ST")],
        [obx("AMP^Ampicillin^L", "", "", _8="R"), obx("AMP^Ampicillin^L", "", "", _8="R")],
    ],
)
async def test_values_that_nothing_tells_apart_are_refused(tmp_path: Path, values: list[str]) -> None:
    async with connected_peer(tmp_path) as peer:
        assert (await peer.send(msh(), OBR, *values)).startswith("AE: ")
        assert not peer.reports


async def test_one_loinc_code_for_tests_of_their_own(tmp_path: Path) -> None:
    """Fasting and after an hour: one LOINC code, told apart by the laboratory's own."""
    first, second = obx("2345-7^Glucose^LN^G0^fasting^L"), obx("2345-7^Glucose^LN^G60^after 60 min^L", "9.1")
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, first, second) == "AA"
        assert [(one.id, value_text(one)) for one in peer.reports[0].observations] == [
            ("2345-7/G0", "5.1"),
            ("2345-7/G60", "9.1"),
        ]


@pytest.mark.parametrize("status", ["X", "N"])
async def test_value_that_will_not_come_stops_no_other(tmp_path: Path, status: str) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), OBR, obx(), obx(K, "", _11=status), "NTE|1||haemolysed") == "AA"
        assert peer.values() == {"F1": ["5.1"]}
        assert peer.reports[0].observations[0].note == "Potassium: haemolysed"


# --- what a reason may name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(obx("Mrs Doe says^^L"), obx("Mrs Doe says^^L", "6")), (obx(kind="Mrs Doe says"),)])
async def test_reason_quotes_no_free_text(tmp_path: Path, values: tuple[str, ...]) -> None:
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(msh(), OBR, *values)
        assert answer.startswith("AE: ")
        assert "doe" not in (answer + "".join(peer.inbox.rejections.values())).lower()


# --- results with an MSA ----------------------------------------------------------------------------------------------------


async def test_results_in_answer_to_a_query_are_results(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(msh(), "MSA|AA|Q1", OBR, obx()) == "AA"
        assert peer.values() == {"F1": ["5.1"]}
