"""Empty values, numbers that are none, flags, times, repeats, documents in texts: what is read, left out or refused."""

from base64 import b64encode
from pathlib import Path

import pytest

from lab_agent.lis.lab_messages import ReportStatus
from tests.harness.documents import PDF, PNG
from tests.harness.hl7_peer import Case, read_message, value_text

L1 = "LAAAAAAAAAAAAAAA"
OBR = f"OBR|1|{L1}|F1|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
GLU, K = "2345-7^Glucose^LN", "2823-3^Potassium^LN"


def msh(control_id: str = "1", *, kind: str = "ORU^R01", mode: str = "P", rest: str = "") -> str:
    return f"MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{kind}|{control_id}|{mode}|2.5.1{rest}"


def obx(code: str = GLU, value: str = "5.1", unit: str = "mmol/L", *, kind: str = "NM", **fields: str) -> str:
    """An OBX; `fields` by number: `_4` is the sub-id, `_8` the flag, `_11` the status, `_14` the time."""
    given = {"_2": kind, "_3": code, "_5": value, "_6": unit, "_11": "F", **fields}
    return "OBX|1|" + "|".join(given.get(f"_{number}", "") for number in range(2, 22)).rstrip("|")


FULL, EMPTY = obx(), obx(K, "")
NO_VALUE, ITS_RESULT = "OBX 2 has no value", "OBX 2 has no value, and a flag"
OF_PDF = "OBX|1|ED|PDF||^application^PDF^Base64^JVBERi0xLjQK||||||F"
QUALITY = '[[results.ignore]]\npath = "MSH-16"\nvalue = "2"\n[[results.ignore]]\npath = "MSH-11"\nvalue = "Q"\n'
CONTROL = "SPM|1|QC1^||SER" + "|" * 7 + "Q"
CODES = "2345-7^Glucose^LN^G0^fasting^L", "2345-7^Glucose^LN^G60^after 60 min^L"
CURVE = (obx(CODES[0], _14="20240517080000+0300"), obx(CODES[1], "9.1", _14="20240517090000+0300"))
ANALYSER = (obx(_14="20240517080000+0300"), obx(K, _14="20240517080100+0300"))


def values(*obxs: str, said: str = "", refused: str = "", left_out: str = "", mapping: str = "") -> Case:
    """A message of one OBR; `said` are its values."""
    return Case((msh(), OBR, *obxs), said and f"F1@LA: {said}", refused, left_out, mapping)


CASES = {
    # empty values: a report that would be empty, a correction to nothing, a comment without a value are for an operator
    "empty": values(FULL, EMPTY, said="5.1", left_out=NO_VALUE),
    "null": values(FULL, obx(K, '""'), said="5.1", left_out=NO_VALUE),
    "empty without status": values(FULL, obx(K, "", _11=""), said="5.1", left_out=NO_VALUE),
    "nothing": values(EMPTY, refused="none of its OBX has a value"),
    "nothing but a note": values(EMPTY, "NTE|1||haemolysed", refused="none of its OBX has a value"),
    "corrected to nothing": values(FULL, obx(K, "", _11="C"), refused=NO_VALUE),
    "withdrawn": values(FULL, obx(_11="X"), refused="OBX 2 has the status X"),
    "note of a document": values(OF_PDF, "NTE|1||of the PDF", refused="has a note"),
    "empty by the map": values(FULL, EMPTY, refused=NO_VALUE, mapping='[results]\nempty_value = "refuse"\n'),
    "paragraphs": values(
        *(obx("630-4^Culture^LN", text, "", kind="TX", _4="1") for text in ("one", "", "two", "")),
        said="one\n\ntwo", left_out="OBX 4 has no value",
    ),
    # one value out of range must not keep the rest of a blood count from the clinic; the map mends another notation
    **{
        text: values(FULL, obx(K, text), said=f"5.1, {shown}", left_out="OBX 2 is no number (NM), and is read as a text")
        for text, shown in {"****": "****", "neg": "neg", "5.": "5. mmol/L", "> range": "> range"}.items()
    },
    **{text: values(FULL, obx(K, text), refused="OBX 2 has an invalid number") for text in ("4,9", "1,234.5", "1 234,5")},
    # flags
    **{f"flag {flag}": values(FULL, obx(K, "", _8=flag), refused=ITS_RESULT) for flag in ("A", ">", "^Lipaemic")},
    # times of values: a report has one time, and the clinic would read the same for all of its values
    "curve": values(*CURVE, refused="different times"),
    "no other time": Case((msh(), OBR.replace("20240517083000+0300", ""), *ANALYSER), "", "no collection time"),
    "times of an analyser": values(*ANALYSER, said="5.1, 5.1"),
    # one observation in several OBX
    "same twice": values(FULL, "NTE|1||a note", FULL.replace("|1|", "|2|", 1), said="5.1", left_out="OBX 2 is the same as OBX 1"),
    "corrected": values(obx(value="9.9", _11="W"), obx(_11="C"), said="5.1", left_out="OBX 1 (W) is corrected by OBX 2"),
    "wrong alone": values(obx(K, _11="W"), obx(_11="C"), refused="the status W"),
    "lines of ST": values(
        *(obx("FILM^Film^L", line, "", kind="ST") for line in ("The film shows moderate anisocytosis and", "No blasts.")),
        said="The film shows moderate anisocytosis and\nNo blasts.",
    ),
    "two numbers": values(obx(), obx(value="5.3"), refused="more than once"),
    "two words": values(*(obx("V^V^L", text, "", kind="ST") for text in ("Not detected", "Detected")), refused="more than once"),
    "two flags": values(*[obx("AMP^Ampicillin^L", "", "", _8="R")] * 2, refused="OBR 1: "),
    # several numbers or "about" in one text: the first repetition is empty, and the second would be delivered as exact
    **{
        f"{kind} {text}": values(obx(value=text, kind=kind), refused="OBX 1")
        for kind in ("NM", "ST", "IS", "SN")
        for text in (("~^140", "~^ 140", "~^5-10") if kind == "SN" else ("~140", "~ 140", "~5-10", "5~10"))
    },
    **{f"escaped about {kind}": values(obx(value="\\R\\140", kind=kind), said="~140 mmol/L") for kind in ("ST", "IS")},
    "escaped about NM": values(obx(value="\\R\\5-10"), said="~5-10 mmol/L", left_out="is no number"),
    **{f"lost dash {text!r}": values(obx(_7=text), refused="OBX 1") for text in ("0\x9610", "3.5\u200b5.1")},
    # types of the LIS's own, results in answer to a query, quality control
    **{f"type {kind!r}": values(obx(kind=kind), refused="unsupported type") for kind in ("", "num", "XX")},
    **{
        f"type {kind} by the map": values(obx(kind=kind), said="5.1", mapping=f'[tables.value_types]\n"{named}" = "NM"\n')
        for kind, named in (("", ""), ("num", "NUM"), ("XX", "XX"))
    },
    "answer to a query": Case((msh(), "MSA|AA|Q1", OBR, FULL), "F1@LA: 5.1"),
    "control": Case((msh(mode="Q", kind="QCN^J01"), "ZQC|1", "OBX|1|NM|x"), "", "", "ignored, because MSH-11 is Q", QUALITY),
    "MSH-16": Case((msh(rest="||||2"), OBR, FULL), "", "", "ignored, because MSH-16 is 2", QUALITY),
    "control specimen": Case(
        (msh(kind="OUL^R22"), CONTROL, OBR.replace("F1", "QC"), "OBX|1|XX|level", "SPM|2|T1||SER" + "|" * 7 + "P", OBR, FULL),
        "F1@LA/T1: 5.1", "", "ignored, because SPM-11 is Q", '[[results.ignore]]\npath = "SPM-11"\nvalue = "Q"\n',
    ),
    # the time of the header is read only where it is needed
    **{
        f"sent {sent}": Case((msh().replace("20240518100000+0300", sent), OBR, FULL), "F1@LA: 5.1")
        for sent in ("20240518100000", "yesterday")
    },
    **{
        f"issued {sent}": Case(
            (msh().replace("20240518100000+0300", sent), OBR.replace("20240518090000+0300", ""), FULL), "", "OBR 1: "
        )
        for sent in ("20240518100000", "yesterday")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_value_is_read_left_out_or_refused(tmp_path: Path, name: str) -> None:
    await CASES[name].check(tmp_path)


IGNORED, NOTED = '[results]\nvalue_times = "ignore"\n', '[results]\nvalue_times = "note"\n'


@pytest.mark.parametrize(
    ("segments", "mapping", "notes"),
    [
        ((EMPTY, "NTE|1||haemolysed", FULL), "", ["Potassium: haemolysed"]),
        ((FULL, obx(K, "", _8="^Lipaemic", _11="X")), "", ["Potassium: Lipaemic"]),
        *(((FULL, obx(K, "", _11=status), "NTE|1||haemolysed"), "", ["Potassium: haemolysed"]) for status in "XN"),
        (CURVE, NOTED, [f"time of this value: 2024-05-17 0{hour}:00+03:00" for hour in (8, 9)]),
        (CURVE, IGNORED, [None, None]),
        ((obx(_8="^Lipaemic"),), "", ["Lipaemic"]),
        ((FULL, "NTE|1||drawn twice\nBoth tubes were full"), "", ["drawn twice\nBoth tubes were full"]),
    ],
)
async def test_what_is_no_value_is_said_in_a_note(
    tmp_path: Path, segments: tuple[str, ...], mapping: str, notes: list[str | None]
) -> None:
    read = await read_message(tmp_path, msh(), OBR, *segments, mapping=mapping)
    assert [one.note for one in read.reports[0].observations] == notes
    assert read.refused == ""


async def test_values_of_one_code_have_ids_of_their_own(tmp_path: Path) -> None:
    """Fasting and after an hour: one LOINC code, told apart by the laboratory's own."""
    [report] = (await read_message(tmp_path, msh(), OBR, obx(CODES[0]), obx(CODES[1], "9.1"))).reports
    assert [(one.id, value_text(one)) for one in report.observations] == [("2345-7/G0", "5.1"), ("2345-7/G60", "9.1")]


@pytest.mark.parametrize("segments", [(obx("Mrs Doe says^^L"), obx("Mrs Doe says^^L", "6")), (obx(kind="Mrs Doe says"),)])
async def test_reason_quotes_no_free_text(tmp_path: Path, segments: tuple[str, ...]) -> None:
    refused = (await read_message(tmp_path, msh(), OBR, *segments)).refused
    assert refused
    assert "doe" not in refused.lower()


@pytest.mark.parametrize("code", [GLU, "WEIRD^Glucose^99LIS^2345-7^Glucose^LN"])
async def test_test_code_by_the_map(tmp_path: Path, code: str) -> None:
    obr = OBR.replace(L1, "").replace("|GLU|", f"|{code}|")
    [report] = (await read_message(tmp_path, msh(), obr, FULL, mapping='[tables.items]\n"2345-7" = "A09.05"\n')).reports
    assert (report.items, report.completes) == (("A09.05",), None)


async def test_number_without_test_completes_what_it_means(tmp_path: Path) -> None:
    """Where neither a line nor a test is known, a final report completes what its number means, not the whole order."""
    [report] = (await read_message(tmp_path, msh(), OBR.replace(L1, ""), FULL, mapping="[results]\nitem = []\n")).reports
    assert (report.status, report.items, report.completes) == (ReportStatus.FINAL, (), ("F1",))


# --- a document in Base64 is a document, or refused, and never a text, whatever OBX-2 says ----------------------------------

DATA = b64encode(PDF).decode()


def doc(text: str, kind: str = "TX", code: str = "PDF^Report^L", **fields: str) -> str:
    return obx(code, text, "", kind=kind, **fields)


def cut(size: int, mark: str = " ") -> str:
    return mark.join(DATA[start : start + size] for start in range(0, len(DATA), size))


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        *(([doc(DATA, kind)], []) for kind in ("ST", "TX", "FT")),
        ([doc(cut(76, "\\.br\\"), "FT")], []),
        *(([doc(cut(76, mark))], []) for mark in ("\n", "~")),
        *(([doc(text, "ST")], []) for text in (f"data:application/pdf;base64,{DATA}", f"^application^pdf^Base64^{DATA}")),
        ([doc(text) for text in cut(76).split()], []),
        ([doc(text, _4=str(number)) for number, text in enumerate(cut(80).split())], []),
        ([doc("5.4", "ST", "GLU^Glucose^L"), doc(DATA, "ST"), doc("Normal", "TX", "TXT^Remark^L")], ["5.4", "Normal"]),
        ([*(doc(text) for text in cut(76).split()), doc("Negative")], ["Negative"]),
    ],
)
async def test_document_in_a_text_is_a_document(tmp_path: Path, segments: list[str], expected: list[str]) -> None:
    [report] = (await read_message(tmp_path, msh(), OBR, *segments)).reports
    (document,) = report.documents
    assert (document.content, document.content_type, document.title) == (PDF, "application/pdf", "Report")
    assert [one.value_string for one in report.observations] == expected


async def test_other_and_cut_off_documents_in_texts(tmp_path: Path) -> None:
    """What is cut off is held later, as one of type ED is."""
    texts = [doc(b64encode(content).decode()) for content in (PNG, b"<?xml version='1.0'?><a/>")]
    [report] = (await read_message(tmp_path, msh(), OBR, *texts)).reports
    assert [one.content_type for one in report.documents] == ["image/png", "application/xml"]
    [report] = (await read_message(tmp_path, msh(), OBR, doc(DATA[:201]))).reports
    assert report.documents[0].content == PDF[:150]


@pytest.mark.parametrize(
    "segments",
    [
        [doc(f"{DATA[:80]}…{DATA[80:]}")],
        [doc(text) for text in cut(76).split()[:3]],
        *([doc(text, kind)] for text, kind in ((DATA, "NM"), (DATA, "CE"), (f"A^{DATA}^L", "CE"))),
        [doc("5.4", "NM"), f"NTE|1||{DATA}"],
    ],
)
async def test_document_that_cannot_be_taken_is_refused(tmp_path: Path, segments: list[str]) -> None:
    read = await read_message(tmp_path, msh(), OBR, *segments)
    assert (read.said, bool(read.refused)) == ("", True)
