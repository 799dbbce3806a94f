"""What a message of results says, in our words."""

from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from lab_agent.domain.lab_messages import (
    LabRejection,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReferenceRange,
    ReportedPatient,
    ReportStatus,
)
from lab_agent.domain.values import CodeableConcept, Coding, Identifier, PartialDate, Quantity, Range, Ratio
from lab_agent.lis.hl7v2.acks import parse_ack
from lab_agent.lis.hl7v2.field_map import default_field_map, load_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.report_merging import ParsedReport
from lab_agent.lis.hl7v2.results.result_reader import ResultReader

L1, L2, R1 = "LAAAAAAAAAAAAAAA", "LBBBBBBBBBBBBBBB", "RAAAAAAAAAAAAAAA"
MSH = "MSH|^~\\&|LIS||AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1"
OBR = f"OBR|1|{L1}|F1|T|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
STORED: dict[str, LabReport] = {}


def parts(*segments: str, zone: str | None = None, mapping: str = "", tmp_path: Path | None = None) -> list[ParsedReport]:
    field_map = default_field_map()
    if tmp_path is not None:
        (tmp_path / "map.toml").write_text(mapping)
        field_map = load_field_map(tmp_path / "map.toml")
    reader = ObxValueReader(field_map, ZoneInfo(zone) if zone else None)
    return ResultReader(reader, STORED.get).read(parse_message("\r".join((MSH, "PID|1||X", *segments)) + "\r"))


def report(*segments: str, **how: object) -> LabReport:
    [part] = parts(*segments, **how)  # type: ignore[arg-type]
    assert isinstance(part.content, LabReport), part.problem
    return part.content


def problem(*segments: str, **how: object) -> str:
    [part] = parts(*segments, **how)  # type: ignore[arg-type]
    assert part.problem is not None, part.content
    return part.problem


def value(kind: str, text: str, unit: str = "", **how: object) -> object:
    [one] = report(OBR, f"OBX|1|{kind}|718-7^Hb^LN||{text}|{unit}|||||F", **how).observations
    [(_, found)] = [
        (name, getattr(one, name)) for name in one.__slots__ if name.startswith("value_") and getattr(one, name) is not None
    ]
    return found


GRAMS = {"unit": "g/L"}


@pytest.mark.parametrize(
    ("kind", "text", "unit", "meant"),
    [
        ("NM", "1.20", "g/L", Quantity(value=Decimal("1.20"), **GRAMS)),
        ("NM", "-0.50", "", Quantity(value=Decimal("-0.50"))),
        ("NM", "<5.0", "g/L", Quantity(value=Decimal("5.0"), comparator="<", **GRAMS)),
        ("NM", "1.0E+5", "", Quantity(value=Decimal("1.0E+5"))),
        ("NM", "5", "mmol/L^^UCUM", Quantity(value=Decimal(5), unit="mmol/L", system="http://unitsofmeasure.org", code="mmol/L")),
        ("NM", "5", "mmol/L^^ISO+", Quantity(value=Decimal(5), unit="mmol/L")),
        ("NM", "5", "mm^millimole^L", Quantity(value=Decimal(5), unit="millimole")),
        ("SN", ">=^1.50", "g/L", Quantity(value=Decimal("1.50"), comparator=">=", **GRAMS)),
        ("SN", "^10^-^20.0", "", Range(low=Quantity(value=Decimal(10)), high=Quantity(value=Decimal("20.0")))),
        ("SN", "^1^:^128", "", Ratio(numerator=Quantity(value=Decimal(1)), denominator=Quantity(value=Decimal(128)))),
        ("SN", "^2^+", "", "2+"),
        ("ST", "straw\\T\\clear", "", "straw&clear"),
        ("ST", "5.1", "", "5.1"),
        ("ST", "5.1", "g/L", Quantity(value=Decimal("5.1"), **GRAMS)),
        ("ST", "<= 5.10", "g/L", Quantity(value=Decimal("5.10"), comparator="<=", **GRAMS)),
        ("TX", "5.1", "g/L", Quantity(value=Decimal("5.1"), **GRAMS)),
        ("IS", "5.1", "g/L", Quantity(value=Decimal("5.1"), **GRAMS)),
        ("ST", "5-10", "/HPF", "5-10 /HPF"),
        ("ST", "+1", "g/L", "+1 g/L"),
        ("ST", "5.1 g/l", "g/L", "5.1 g/l"),
        ("ST", "neg", "g/L", "neg"),
        ("CWE", "^5-10", "/HPF", CodeableConcept(text="5-10 /HPF")),
        ("CWE", "10^5 CFU/mL", "", CodeableConcept(text="10^5 CFU/mL")),
        ("SN", "^2^+", "g/L", "2+ g/L"),
        ("SN", "^1^:^128", "titre", "1:128 titre"),
        ("TX", "one~two", "", "one\ntwo"),
        ("FT", "one\\.br\\two", "", "one\ntwo"),
        ("TM", "0830", "", time(8, 30)),
        ("DT", "20240517", "", PartialDate("2024-05-17")),
        ("DT", "202405", "", PartialDate("2024-05")),
        ("TS", "2024", "", PartialDate("2024")),
        ("TS", "20240517083000.1234+0300", "", datetime(2024, 5, 17, 8, 30, 0, 123400, timezone(timedelta(hours=3)))),
        ("DTM", "202405170830+0000", "", datetime(2024, 5, 17, 8, 30, tzinfo=UTC)),
    ],
)
def test_obx_value_types_converted(kind: str, text: str, unit: str, meant: object) -> None:
    found = value(kind, text, unit)
    assert found == meant
    if isinstance(found, Quantity):
        assert isinstance(meant, Quantity)
        assert str(found.value) == str(meant.value)


@pytest.mark.parametrize(
    ("field", "unit", "code"),
    [
        ("10^9/L", "10^9/L", None),
        ("10^3/uL", "10^3/uL", None),
        ("x10^12/L", "x10^12/L", None),
        ("x 10^9/L^^L", "x 10^9/L", None),
        ("10^6", "10^6", None),
        ("10\\S\\9/L", "10^9/L", None),
        ("10*9/L", "10*9/L", None),
        ("kg/m^2", "kg/m^2", None),
        ("mL/min/1.73m^2", "mL/min/1.73m^2", None),
        ("10*9/L^10^9/L^UCUM", "10^9/L", "10*9/L"),
        ("10*9/L^10\\S\\9/L^UCUM", "10^9/L", "10*9/L"),
        ("10^9/L^UCUM", "10^9/L", "10^9/L"),
        ("10^9/L^10^9/L^L^10*9/L^10*9/L^UCUM", "10^9/L", "10*9/L"),
        ("GPL^10^9/L^99LAB", "10^9/L", None),
        ("10^mg/dL^99LAB", "mg/dL", None),
        ("mmol/L\u00a0", "mmol/L", None),
    ],
)
def test_unit_with_caret_is_one_word(field: str, unit: str, code: str | None) -> None:
    found = value("NM", "5.1", field)
    assert isinstance(found, Quantity)
    assert (found.unit, found.code) == (unit, code)


@pytest.mark.parametrize("kind", ["CE", "CWE", "CNE"])
def test_obx_coded_value_keeps_both_triples(kind: str) -> None:
    assert value(kind, "260385009^Negative^SCT^N^negativ^L") == CodeableConcept(
        coding=(
            Coding(system="http://snomed.info/sct", code="260385009", display="Negative"),
            Coding(code="N", display="negativ"),
        ),
        text="Negative",
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("3.5-5.1", ReferenceRange(low=Quantity(value=Decimal("3.5"), **GRAMS), high=Quantity(value=Decimal("5.1"), **GRAMS))),
        ("-1.0 - 2", ReferenceRange(low=Quantity(value=Decimal("-1.0"), **GRAMS), high=Quantity(value=Decimal(2), **GRAMS))),
        ("<5", ReferenceRange(high=Quantity(value=Decimal(5), **GRAMS), text="<5")),
        (">=60", ReferenceRange(low=Quantity(value=Decimal(60), **GRAMS), text=">=60")),
        ("negative", ReferenceRange(text="negative")),
        ("5.1-3.5", ReferenceRange(text="5.1-3.5")),
        ("3,5 - 5,1", ReferenceRange(text="3,5 - 5,1")),
        ("< 5", ReferenceRange(high=Quantity(value=Decimal(5), **GRAMS), text="< 5")),
        ("^^10.0", ReferenceRange(high=Quantity(value=Decimal("10.0"), **GRAMS), text="10.0")),
        ("-10", ReferenceRange(high=Quantity(value=Decimal(10), **GRAMS), text="-10")),
        ("60 -", ReferenceRange(low=Quantity(value=Decimal(60), **GRAMS), text="60 -")),
        ("0-10^^", ReferenceRange(low=Quantity(value=Decimal(0), **GRAMS), high=Quantity(value=Decimal(10), **GRAMS))),
        ("0^10", ReferenceRange(low=Quantity(value=Decimal(0), **GRAMS), high=Quantity(value=Decimal(10), **GRAMS))),
        ("0^-^10", ReferenceRange(low=Quantity(value=Decimal(0), **GRAMS), high=Quantity(value=Decimal(10), **GRAMS))),
        ("0&10", ReferenceRange(low=Quantity(value=Decimal(0), **GRAMS), high=Quantity(value=Decimal(10), **GRAMS))),
        ("(0 - 10)", ReferenceRange(low=Quantity(value=Decimal(0), **GRAMS), high=Quantity(value=Decimal(10), **GRAMS))),
        ("0-10 g/L", ReferenceRange(low=Quantity(value=Decimal(0), **GRAMS), high=Quantity(value=Decimal(10), **GRAMS))),
        ("0-10 mg/L", ReferenceRange(text="0-10 mg/L")),
        ("13&18^M", ReferenceRange(text="13-18 M")),
        ("up to\\X07\\ 10", ReferenceRange(text="up to 10")),
    ],
)
def test_obx_reference_ranges_parsed(text: str, meant: ReferenceRange) -> None:
    [one] = report(OBR, f"OBX|1|NM|718-7^Hb^LN||4|g/L|{text}|H~A|||F").observations
    assert one.reference_ranges == (meant,)
    assert one.flags == ("H", "A")


@pytest.mark.parametrize(
    ("code", "meant"),
    [("F", "final"), ("C", "amended"), ("P", "preliminary"), ("R", "preliminary"), ("S", "preliminary"), ("I", "registered")],
)
def test_obx_status_codes_mapped(code: str, meant: str) -> None:
    [one] = report(OBR, f"OBX|1|NM|718-7^Hb^LN||4|||||||{code}".replace("|||||||", "||||||")).observations
    assert one.status == ObservationStatus(meant)


@pytest.mark.parametrize("code", ["X", "D", "W", "N"])
def test_obx_unclear_status_needs_operator(code: str) -> None:
    """A deleted, wrong or missing result (OBX-11 X, D, W, N) is a problem for an operator."""
    assert "operator" in problem(OBR, f"OBX|1|NM|718-7^Hb^LN||4||||||{code}")


def test_report_with_preliminary_value_is_partial() -> None:
    one = report(OBR, "OBX|1|NM|718-7^Hb^LN||4||||||F", "OBX|2|NM|777-3^Plt^LN||4||||||P")
    assert one.status is ReportStatus.PARTIAL


def test_obx_status_u_makes_stored_value_final() -> None:
    """OBX-11 U takes the stored value as final, and is a problem where no value was sent before."""
    first = report(OBR.replace("|||F", "|||P"), "OBX|1|NM|718-7^Hb^LN||1.20|g/L|||||P")
    assert first.status is ReportStatus.PRELIMINARY
    STORED[first.report_id] = first
    [one] = report(OBR, "OBX|1||718-7^Hb^LN||||||||U").observations
    assert (one.status, str(one.value_quantity and one.value_quantity.value)) == (ObservationStatus.FINAL, "1.20")
    assert "not sent before" in problem(OBR, "OBX|1||777-3^Plt^LN||||||||U")


@pytest.mark.parametrize(
    "field",
    [
        "^application^PDF^Base64^{data}",
        "^AP^PDF^BASE64^{data}",
        "LIS^TEXT^^Base64^{data}",
        "PDF^Base64^{data}",
        "^application^pdf^Base64^\\X0D\\{data}",
    ],
)
def test_ed_document_spelling_variants_read(field: str) -> None:
    found = report(OBR, f"OBX|1|ED|PDF^Printed form^L||{field.format(data='JVBERi0xLjQK')}||||||F")
    assert found.observations == ()
    [document] = found.documents
    assert (document.content, document.content_type, document.title) == (b"%PDF-1.4\n", "application/pdf", "Printed form")


def test_rp_document_link_read_invalid_url_rejected() -> None:
    [document] = report(OBR, "OBX|1|RP|PDF||https://lis.example/r/1.pdf^^application^PDF||||||F").documents
    assert document.url == "https://lis.example/r/1.pdf"
    assert "not a web address" in problem(OBR, "OBX|1|RP|PDF||\\\\share\\r.pdf||||||F")
    assert "not a web address" in problem(OBR, "OBX|1|RP|PDF||http://[::1||||||F")


@pytest.mark.parametrize("odd", ["9" * 201, "7\\X09\\7"])
def test_ack_invalid_accession_number_skipped(odd: str) -> None:
    """A filler number that is too long or holds control characters does not spoil the rest of the acknowledgement."""
    answer = parse_ack(parse_message(f"{MSH}\rMSA|AA|M1\rORC|OK|{L1}|{odd}\rORC|OK|{L2}|77\r"))
    assert answer is not None
    assert answer.accessions == ((L2, "77"),)


def test_order_level_document_completes_no_lines() -> None:
    found = report(OBR.replace(L1, R1), "OBX|1|ED|PDF||^application^PDF^Base64^JVBERi0xLjQK||||||F")
    assert (found.order, found.lines, found.items, found.completes) == (R1, (), (), ())


def test_rejected_specimen_becomes_rejection() -> None:
    [part] = parts(OBR, f"SPM|1|0001|||{'|' * 16}RH^^HL70490")
    assert part.content == LabRejection(
        accession="F1",
        barcode="0001",
        not_performed=(NotPerformed(line=L1, reason="the specimen is haemolysed"),),
        collect_again=True,
        patient=ReportedPatient(identifiers=(Identifier(value="X"),)),
    )
    assert "both results and a rejected specimen" in problem(OBR, "OBX|1|NM|718-7^Hb^LN||4||||||F", f"SPM|1||||{'|' * 16}RH")


def test_results_after_leading_specimen_are_results() -> None:
    """Results behind an SPM segment that comes first are results, not a rejected specimen."""
    found = report(OBR, "SPM|1|0001", "OBX|1|NM|718-7^Hb^LN||4||||||F", "OBX|2|NM|777-3^Plt^LN||5||||||F")
    assert len(found.observations) == 2


def test_invalid_order_group_does_not_affect_others() -> None:
    first, second = parts(OBR, "OBX|1|NM|718-7^Hb^LN||3,9||||||F", OBR.replace(L1, L2), "OBX|1|NM|718-7^Hb^LN||4||||||F")
    assert (first.problem or "").startswith("OBR 1: OBX 1 has an invalid number")
    assert second.problem is None


def test_two_reports_complete_line_together() -> None:
    """Two OBR groups of one order line complete it only when both are final."""
    second = OBR.replace("|T|", "|T2|").replace("|||F", "|||P")
    first, other = (part.content for part in parts(OBR, "OBX|1|NM|718-7||4||||||F", second, "OBX|1|NM|718-7||4||||||P"))
    assert isinstance(first, LabReport)
    assert (first.status, first.completes) == (ReportStatus.FINAL, ())
    assert isinstance(other, LabReport)
    assert other.completes is None


def test_multiline_text_and_notes_joined() -> None:
    found = report(
        OBR,
        "NTE|1||of the report",
        "OBX|1|TX|630-4^Culture^LN|1|one||||||F",
        "OBX|2|TX|630-4^Culture^LN|1|two||||||F",
        "NTE|1||of it",
    )
    [one] = found.observations
    assert (one.value_string, one.note, one.id) == ("one\ntwo", "of the report\nof it", "630-4/1")


def test_lines_of_a_text_are_no_numbers() -> None:
    """A number on a line of its own belongs to the text, whatever unit stands beside it."""
    found = report(OBR, "OBX|1|TX|630-4^Culture^LN||colonies:|g/L|||||F", "OBX|2|TX|630-4^Culture^LN||50|g/L|||||F")
    assert [one.value_string for one in found.observations] == ["colonies:\n50 g/L"]


def test_numeric_text_switched_off_keeps_unit_in_text(tmp_path: Path) -> None:
    assert value("ST", "5.1", "10^9/L", mapping="[results]\nnumeric_text = false", tmp_path=tmp_path) == "5.1 10^9/L"


def test_control_character_in_unit_or_code_is_refused() -> None:
    assert "control character in OBX-6" in problem(OBR, "OBX|1|NM|718-7^Hb^LN||4|g\\X00\\L|||||F")
    assert "control character in a code" in problem(OBR, "OBX|1|NM|718\\X07\\-7^Hb^LN||4|g/L|||||F")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("caf\\X00E9\\", "caf\u00e9"),
        ("a\\X07\\b\\X1B\\c", "abc"),
        ("a\\X0D0A\\b\\X0C\\c", "a\nb\nc"),
        ("a\u00a0b\u200b", "a b"),
        ("\\H\\bold\\N\\", "bold"),
        ("a\\X09\\b", "a\tb"),
    ],
)
def test_text_is_what_a_person_reads(text: str, meant: str) -> None:
    assert value("ST", text) == meant


def test_hour_without_minutes_stays_a_day() -> None:
    found = report(OBR.replace("20240517083000+0300", "2024051708"), "OBX|1|NM|718-7||4||||||F")
    assert found.effective == PartialDate("2024-05-17")


def test_specimen_and_analysis_days_stay_days() -> None:
    """SPM-17, OBR-8 and OBX-14 as OBR-7: no midnight is invented."""
    bare = OBR.replace("20240517083000+0300", "")
    [analysed] = parts(bare, "OBX|1|NM|718-7||4||||||F|||20240516")
    [collected] = parts(bare, "OBX|1|NM|718-7||4||||||F", f"SPM|1|0001|{'|' * 14}20240515^20240516")
    assert [part.content.effective for part in (analysed, collected)] == [  # type: ignore[union-attr]
        PartialDate("2024-05-16"),
        PartialDate("2024-05-15"),
    ]


def test_loinc_read_from_either_triple() -> None:
    [one] = report(OBR, "OBX|1|NM|HB^Haemoglobin^L^718-7^Hemoglobin^LN||4||||||F").observations
    assert one.code == Coding(system="http://loinc.org", code="718-7", display="Hemoglobin")


def test_order_found_by_filler_number_or_barcode() -> None:
    found = report(
        "OBR|1||F1|HB|||20240517083000+0300|||||||||||||||20240518090000+0300|||F", "SPM|1|0001", "OBX|1|NM|718-7||4||||||F"
    )
    assert (found.lines, found.accession, found.barcode, found.items) == ((), "F1", "0001", ("HB",))
    assert "no reference to an order" in problem("OBR|1|||HB|||20240517083000+0300|||||||||||||||20240518|||F")


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ((OBR.replace("+0300", ""), "OBX|1|NM|718-7||4||||||F"), "no time zone"),
        ((OBR.replace("20240517", "20241399"), "OBX|1|NM|718-7||4||||||F"), "collection time that"),
        ((OBR.replace("20240517083000+0300", "00010101000000+0000"), "OBX|1|NM|718-7||4||||||F"), "out of range"),
        ((OBR.replace("20240517083000+0300", "00010102010000+1400"), "OBX|1|NM|718-7||4||||||F"), "out of range"),
        ((OBR.replace("20240517083000+0300", "99991231235959-1200"), "OBX|1|NM|718-7||4||||||F"), "out of range"),
        ((OBR.replace("|||F", "|||Q"), "OBX|1|NM|718-7||4||||||F"), "unknown status"),
        ((OBR, "OBX|1|NM|||4||||||F"), "no code"),
        ((OBR, "OBX|1|NM|718-7||||||||F"), "none of its OBX has a value"),
        ((OBR, "OBX|1|XX|718-7||4||||||F"), "unsupported type"),
        ((OBR, "OBX|1|NM|718-7||3,5||||||F"), "invalid number"),
        ((OBR, "OBX|1|ED|PDF||^application^PDF^Base64^%%%||||||F"), "does not match its encoding"),
        ((), "has no OBR"),
    ],
)
def test_unreadable_result_gives_reason(segments: tuple[str, ...], why: str) -> None:
    assert why in problem(*segments)


def test_time_without_zone_uses_configured_zone() -> None:
    found = report(OBR.replace("+0300", ""), "OBX|1|NM|718-7||4||||||F", zone="Europe/Moscow")
    assert isinstance(found.effective, datetime)
    assert found.effective.utcoffset() == timedelta(hours=3)


def test_day_of_issue_gives_way_to_message_time() -> None:
    found = report(
        OBR.replace("20240518090000+0300", "20240518"), "OBX|1|NM|718-7||4||||||F||||||||20240518", zone="Europe/Moscow"
    )
    assert (found.issued.hour, found.issued.minute) != (0, 0)
    assert found.observations[0].issued is None


def test_collection_day_without_time_stays_a_day() -> None:
    found = report(OBR.replace("20240517083000+0300", "20240517"), "OBX|1|NM|718-7||4||||||F")
    assert found.effective == PartialDate("2024-05-17")


MAPPING = """
[results]
decimal_comma = true
numeric_text = true
report_id = ["ZRP-1"]
version = ["ZRP-2"]
specimen = ["SPM-2.1"]
[tables.report_status]
X = "refused"
[tables.code_systems]
LAB = "http://lab.example/codes"
"""


def test_custom_mapping_file_overrides_defaults(tmp_path: Path) -> None:
    how = {"mapping": MAPPING, "tmp_path": tmp_path}
    found = report(OBR, "ZRP|B-1|3", "SPM|1|0001", "OBX|1|ST|HB^Hb^LAB||3,50|g/L|3,5-5,1||||F", **how)
    [one] = found.observations
    assert (found.report_id, found.version, one.specimen, one.code.system) == ("B-1", 3, "0001", "http://lab.example/codes")
    assert str(one.value_quantity and one.value_quantity.value) == "3.50"
    [part] = parts(OBR.replace("|||F", "|||X"), "NTE|1||no reagent", **how)  # type: ignore[arg-type]
    assert isinstance(part.content, LabRejection)
    assert part.content.not_performed == (NotPerformed(line=L1, reason="no reagent"),)
