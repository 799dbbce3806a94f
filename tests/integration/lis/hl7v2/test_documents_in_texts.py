"""On the wire: a document in Base64 is a document, or refused, and never a text, whatever OBX-2 says."""

from base64 import b64encode
from pathlib import Path

import pytest

from tests.harness.documents import PDF, PNG
from tests.harness.hl7_peer import connected_peer

L1 = "LAAAAAAAAAAAAAAA"
HEADER = "MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1"
OBR = f"OBR|1|{L1}|F1|GLU|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
DATA = b64encode(PDF).decode()


def obx(text: str, kind: str = "TX", code: str = "PDF^Report^L", sub_id: str = "") -> str:
    return f"OBX|1|{kind}|{code}|{sub_id}|{text}||||||F"


def lines(size: int, mark: str) -> str:
    return mark.join(DATA[start : start + size] for start in range(0, len(DATA), size))


@pytest.mark.parametrize(
    ("segments", "values"),
    [
        ([obx(DATA, "ST")], []),
        ([obx(DATA, "TX")], []),
        ([obx(DATA, "FT")], []),
        ([obx(lines(76, "\\.br\\"), "FT")], []),
        ([obx(lines(76, "\n"), "TX")], []),
        ([obx(lines(76, "~"), "TX")], []),
        ([obx(f"data:application/pdf;base64,{DATA}", "ST")], []),
        ([obx(f"^application^pdf^Base64^{DATA}", "ST")], []),
        ([obx(text) for text in lines(76, " ").split()], []),
        ([obx(text, sub_id=str(number)) for number, text in enumerate(lines(80, " ").split())], []),
        ([obx("5.4", "ST", "GLU^Glucose^L"), obx(DATA, "ST"), obx("Normal", "TX", "TXT^Remark^L")], ["5.4", "Normal"]),
        ([*(obx(text) for text in lines(76, " ").split()), obx("Negative")], ["Negative"]),
    ],
)
async def test_document_in_a_text_is_a_document(tmp_path: Path, segments: list[str], values: list[str]) -> None:
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(HEADER, OBR, *segments) == "AA"
        (report,) = peer.reports
        (document,) = report.documents
        assert (document.content, document.content_type, document.title) == (PDF, "application/pdf", "Report")
        assert [one.value_string for one in report.observations] == values


async def test_other_formats_in_a_text_are_documents(tmp_path: Path) -> None:
    async with connected_peer(tmp_path) as peer:
        texts = [obx(b64encode(content).decode()) for content in (PNG, b"<?xml version='1.0'?><a/>")]
        assert await peer.send(HEADER, OBR, *texts) == "AA"
        assert [one.content_type for one in peer.reports[0].documents] == ["image/png", "application/xml"]


async def test_cut_off_document_in_a_text_is_taken_as_it_is(tmp_path: Path) -> None:
    """It is held later, as one of type ED is."""
    async with connected_peer(tmp_path) as peer:
        assert await peer.send(HEADER, OBR, obx(DATA[:201])) == "AA"
        assert peer.reports[0].documents[0].content == PDF[:150]


@pytest.mark.parametrize(
    "segments",
    [
        [obx(f"{DATA[:80]}…{DATA[80:]}")],
        [obx(text) for text in lines(76, " ").split()[:3]],
        [obx(DATA, "NM")],
        [obx(DATA, "CE")],
        [obx(f"A^{DATA}^L", "CE")],
        [obx("5.4", "NM"), f"NTE|1||{DATA}"],
    ],
)
async def test_document_that_cannot_be_taken_is_refused(tmp_path: Path, segments: list[str]) -> None:
    async with connected_peer(tmp_path) as peer:
        answer = await peer.send(HEADER, OBR, *segments)
        assert answer.startswith("AE"), answer
        assert not peer.reports
