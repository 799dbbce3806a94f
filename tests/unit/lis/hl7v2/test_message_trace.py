"""What `try` shows of a message, and the lines that it proposes for the map and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.message_trace import trace_raw_message
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.laboratory_system import ParsedMessage

MSH = "MSH|^~\\&|LIS|LAB|||20260302101500+0000||ORU^R01|1|P|2.5"
PID = "PID|1||77||Sample^Anna||19800229|F"
OBR = "OBR|1|LDIALECTAAAAAAAA|F1|CBC^Blood count^L|||20260302090000+0000|||||||||||||||20260302101000+0000|||F"
OBX = "OBX|1|NM|HGB^Haemoglobin^L||13.20|g/dL|12.0-16.0|N|||F"


def trace(*segments: str, encoding: str = "utf-8", **settings: Any) -> ParsedMessage:
    return trace_bytes("\r".join(segments).encode(encoding), **settings)


def trace_bytes(raw: bytes, **settings: Any) -> ParsedMessage:
    given = {"orders": {"role": "client", "port": 1}, "folder": Path("none"), "duplicates": "none", **settings}
    return trace_raw_message(raw, "lab1", Hl7v2Settings.model_validate(given), MessageArchive(Path("none"), 1))


def proposed(parsed: ParsedMessage) -> dict[tuple[str, str], str | None]:
    return {(each.table, each.key): each.value for each in parsed.suggestions}


def test_every_segment_says_what_was_read_of_it() -> None:
    parsed = trace(MSH, PID, "PV1|1|O", "ORC|RE|LDIALECTAAAAAAAA", OBR, OBX, "NTE|1||seen", "ZX1|1", "SPM|1|42")
    lines = {line.place.split()[1]: line for line in parsed.trace}
    assert [name for name, line in lines.items() if line.skipped] == ["ZX1"]
    assert "line LDIALECTAAAAAAAA, accession F1" in lines["OBR"].meaning
    assert "status F → final" in lines["OBR"].meaning
    assert lines["OBX"].meaning == "HGB = 13.20 g/dL (quantity), range 12.0 – 16.0 g/dL; status F → final; flags N"
    assert lines["NTE"].meaning == "note of the observation before it"
    assert lines["PV1"].meaning == "not needed: visit"
    assert "searched" in lines["SPM"].meaning


def test_segments_that_name_the_patient_are_marked() -> None:
    parsed = trace(MSH, PID, OBR, OBX, "NTE|1||for Mrs SAMPLE", "NTE|2||nothing")
    assert [line.place for line in parsed.trace if line.personal] == ["2 PID", "5 NTE"]
    assert not any("Sample" in line.meaning for line in parsed.trace)


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ((MSH, PID, OBR[:-1] + "f", OBX), {("tables.report_status", "f"): '"final"'}),
        ((MSH, PID, OBR[:-1] + "K", OBX), {("tables.report_status", "K"): None}),
        ((MSH, PID, OBR, OBX[:-1] + "c"), {("tables.observation_status", "c"): '"amended"'}),
        ((MSH, PID, OBR, OBX.replace("|NM|", "||")), {("tables.value_types", ""): None}),
        ((MSH, PID, OBR, OBX.replace("13.20", "13,20")), {("results", "decimal_comma"): "true"}),
        ((MSH, PID, OBR, OBX.replace("HGB^Haemoglobin^L", "718-7^Haemoglobin^LNC")), {("tables.code_systems", "LNC"): '"http://loinc.org"'}),
        ((MSH, PID, OBR, OBX.replace("^L|", "^HOUSE|")), {("tables.code_systems", "HOUSE"): None}),
        ((MSH, PID, OBR.replace("+0000", ""), OBX), {("lis.lab1", "time_zone"): None}),
        ((MSH, PID, OBR, OBX, "ZX1|1"), {("tables.unused_segments", "ZX1"): None}),
        (
            (MSH.replace("101500+0000", ""), PID, OBR.replace("20260302101000+0000", ""), OBX + "|||||||20260302100500+0000"),
            {},
        ),
        (
            (MSH.replace("101500+0000", ""), PID, OBR.replace("20260302101000+0000", ""), OBX + "||||||||20260302100500+0000"),
            {("results", "issued"): '["OBR-22.1", "MSH-7.1", "OBX-19.1"]'},
        ),
        ((MSH.replace("|P|", "|T|"), PID, OBR, OBX), {("lis.lab1", "processing_id"): '"T"'}),
        ((MSH.replace("|P|", "|Q|"), PID, OBR, OBX), {}),
        ((MSH.replace("|P|", "|Z|"), PID, OBR, OBX), {("lis.lab1", "processing_id"): None}),
        ((MSH, PID, OBR, OBX.replace("|N|||F", "|h~?|||F")), {("tables.flags", "h"): '"H"', ("tables.flags", "?"): None}),
        ((MSH, PID, OBR, OBX, "OBX|2|NM|PLT^^L||5||||||X"), {("results", "leave_out"): None}),
        ((MSH, PID, OBR, OBX, "OBX|2|NM|S_RAW^Raw^IHELAW||5||||||F"), {("results", "leave_out"): '[{ system = "IHELAW" }]'}),
        ((MSH, PID, OBR, OBX, OBX + "|" * 18 + "AOE"), {("results", "leave_out"): '[{ type = "AOE" }]'}),
        ((MSH, PID, OBR, OBX), {}),
    ],
)  # fmt: skip
def test_what_is_missing_is_proposed(segments: tuple[str, ...], expected: dict[tuple[str, str], str | None]) -> None:
    assert proposed(trace(*segments)) == expected


@pytest.mark.parametrize(
    ("encoding", "name", "guess"),
    [
        ("cp1251", "Иванова", '"cp1251"'),
        ("koi8-r", "Иванова", '"koi8-r"'),
        ("cp866", "ИВАНОВА АННА", '"cp866"'),
        ("iso8859-5", "Иванова", '"iso8859-5"'),
        ("gb18030", "张伟 红细胞计数", '"gb18030"'),
        ("latin-1", "Müller", '"cp1252"'),
        ("cp1252", "Fußgänger – Größe", '"cp1252"'),
        ("cp1250", "Dvořák Růžena", '"cp1250"'),
        ("cp1254", "Gülşah Çiğdem", '"cp1254"'),
        ("cp1252", "5–10", None),  # a sign that all Windows pages have
        ("cp1252", "Núñez", None),  # or Núńez of cp1250
        ("iso8859-2", "Łukasz Więcław", None),  # alike in cp1250, whose other letters differ
        ("cp1253", "Γεώργιος", None),
        ("euc_kr", "김철수 혈액 검사 결과", None),
        ("euc_jp", "山田太郎 血液検査", None),
        ("cp850", "Müller Größe", None),
        ("cp1251", "Ёж", None),
    ],
)
def test_code_page_is_proposed_only_where_certain(encoding: str, name: str, guess: str | None) -> None:
    parsed = trace(MSH, PID.replace("Sample", name), OBR, OBX, encoding=encoding)
    assert proposed(parsed) == {("lis.lab1", "received_encoding"): guess}
    assert [part.content for part in parsed.parts] == [None]


@pytest.mark.parametrize("marks", ["", "^~", "^~\\", "^~\\^"])
def test_short_separators_propose_no_code_page(marks: str) -> None:
    parsed = trace(MSH.replace("^~\\&", marks), PID.replace("Sample", "Müller"), OBR, OBX)
    assert (parsed.suggestions, parsed.parts[0].problem) == ((), "MSH-1 and MSH-2 do not define five separators")


def test_barcode_and_item_are_proposed_for_when_they_are_needed() -> None:
    parsed = trace(MSH, PID, OBR.replace("LDIALECTAAAAAAAA", ""), OBX)
    (item,) = [each for each in parsed.suggestions if each.unless_item]
    (barcode,) = [each for each in parsed.suggestions if each.if_barcode]
    assert (item.table, item.key, item.unless_item) == ("tables.items", "CBC", "CBC")
    assert (barcode.key, barcode.if_barcode) == ("barcode", "F1")
    assert barcode.value is not None
    assert barcode.value.endswith('"OBR-3.1"]')


def test_what_is_no_result_has_no_part() -> None:
    assert trace(MSH.replace("ORU^R01", "ACK"), "MSA|AA|1").parts == ()
    (problem,) = [part.problem for part in trace("not HL7").parts]
    assert problem == "the message does not begin with MSH"
    assert trace("not HL7").suggestions == ()


@pytest.mark.slow
def test_trace_of_a_huge_message_is_short() -> None:
    """A person reads no more; every value is read all the same."""
    obx = (f"OBX|{number}|NM|A{number}^^L||1|g/L||N|||F" for number in range(3_000))
    parsed = trace(MSH, PID, OBR, *obx)
    assert len(parsed.trace) == 2_001
    assert parsed.trace[-1].meaning == "1003 more segments are read and not shown"
    assert parsed.parts[0].problem is None
    assert len(parsed.parts[0].content.observations) == 3_000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "raw",
    [b"MSH|" + bytes(range(0x80, 0x100)) * 20, MSH.encode() + b"\r" + bytes(range(256)) * 20, "Просто текст".encode("cp1251")],
)
def test_noise_proposes_no_encoding(raw: bytes) -> None:
    assert trace_bytes(raw).suggestions == ()
