"""What a message of results says, in our words."""

from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from lab_agent.lis.hl7v2.acks import parse_ack
from lab_agent.lis.hl7v2.field_map import default_field_map, load_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.report_merging import ParsedReport
from lab_agent.lis.hl7v2.results.result_reader import ResultReader
from lab_agent.lis.lab_messages import (
    LabRejection,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReferenceRange,
    ReportedPatient,
    ReportStatus,
)
from lab_agent.shared.values import CodeableConcept, Coding, Identifier, PartialDate, Quantity, Range, Ratio

L1, L2, R1 = "LAAAAAAAAAAAAAAA", "LBBBBBBBBBBBBBBB", "RAAAAAAAAAAAAAAA"
MSH = "MSH|^~\\&|LIS||AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1"
OBR = f"OBR|1|{L1}|F1|T|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
HB = "OBX|1|NM|718-7^Hb^LN||4||||||F"
PDF = "OBX|1|ED|PDF||^application^PDF^Base64^JVBERi0xLjQK||||||F"
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
    found = {name: getattr(one, name) for name in one.__slots__ if name.startswith("value_")}
    [value] = [each for each in found.values() if each is not None]
    return value


def amount(digits: str, unit: str | None = "g/L", **more: str) -> Quantity:
    return Quantity(value=Decimal(digits), unit=unit, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "unit", "meant"),
    [
        ("NM", "1.20", "g/L", amount("1.20")),
        ("NM", "1.0E+5", "", amount("1.0E+5", None)),
        ("NM", "5", "mmol/L^^UCUM", amount("5", "mmol/L", system="http://unitsofmeasure.org", code="mmol/L")),
        ("NM", "5", "mmol/L^^ISO+", amount("5", "mmol/L")),
        ("NM", "5", "mm^millimole^L", amount("5", "millimole")),
        ("SN", ">=^1.50", "g/L", amount("1.50", comparator=">=")),
        ("SN", "^10^-^20.0", "", Range(low=amount("10", None), high=amount("20.0", None))),
        ("SN", "^1^:^128", "", Ratio(numerator=amount("1", None), denominator=amount("128", None))),
        ("SN", "^1^:^128", "titre", "1:128 titre"),
        ("SN", "^2^+", "", "2+"),
        ("SN", "^2^+", "g/L", "2+ g/L"),
        ("ST", "straw\\T\\clear", "", "straw&clear"),
        *((kind, "<= 5.10", "g/L", amount("5.10", comparator="<=")) for kind in ("TX", "IS")),
        ("ST", "5-10", "/HPF", "5-10 /HPF"),
        ("CWE", "^5-10", "/HPF", CodeableConcept(text="5-10 /HPF")),
        ("CWE", "10^5 CFU/mL", "", CodeableConcept(text="10^5 CFU/mL")),
        ("TX", "one~two", "", "one\ntwo"),
        ("FT", "one\\.br\\two", "", "one\ntwo"),
        ("TM", "0830", "", time(8, 30)),
        ("DT", "202405", "", PartialDate("2024-05")),
        ("TS", "2024", "", PartialDate("2024")),
        ("TS", "20240517083000.1234+0300", "", datetime(2024, 5, 17, 8, 30, 0, 123400, timezone(timedelta(hours=3)))),
        ("DTM", "202405170830+0000", "", datetime(2024, 5, 17, 8, 30, tzinfo=UTC)),
        # texts are what a person reads
        *(("ST", text, "", meant) for text, meant in (
            ("caf\\X00E9\\", "caf\u00e9"), ("a\\X07\\b\\X1B\\c", "abc"), ("a\\X0D0A\\b\\X0C\\c", "a\nb\nc"),
            ("a\u00a0b\u200b", "a b"), ("\\H\\bold\\N\\", "bold"), ("a\\X09\\b", "a\tb"),
        )),
    ],
)  # fmt: skip
def test_obx_value_types_converted(kind: str, text: str, unit: str, meant: object) -> None:
    found = value(kind, text, unit)
    assert found == meant
    if isinstance(found, Quantity):
        assert isinstance(meant, Quantity)
        assert str(found.value) == str(meant.value)


@pytest.mark.parametrize(
    ("field", "unit", "code"),
    [
        *((each, each, None) for each in ("10^9/L", "x10^12/L", "10^6", "10*9/L", "kg/m^2", "mL/min/1.73m^2")),
        ("x 10^9/L^^L", "x 10^9/L", None),
        ("10\\S\\9/L", "10^9/L", None),
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
    found = value(kind, "260385009^Negative^SCT^N^negativ^L")
    first = Coding(system="http://snomed.info/sct", code="260385009", display="Negative")
    assert found == CodeableConcept(coding=(first, Coding(code="N", display="negativ")), text="Negative")
    [one] = report(OBR, "OBX|1|NM|HB^Haemoglobin^L^718-7^Hemoglobin^LN||4||||||F").observations
    assert one.code == Coding(system="http://loinc.org", code="718-7", display="Hemoglobin")


def between(low: str, high: str) -> ReferenceRange:
    return ReferenceRange(low=amount(low), high=amount(high))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("3.5-5.1", between("3.5", "5.1")),
        ("-1.0 - 2", between("-1.0", "2")),
        *((each, between("0", "10")) for each in ("0-10^^", "0^10", "0^-^10", "0&10", "(0 - 10)", "0-10 g/L")),
        *((each, ReferenceRange(high=amount("5"), text=each)) for each in ("<5", "< 5", "-5")),
        *((each, ReferenceRange(low=amount("60"), text=each)) for each in (">=60", "60 -")),
        ("^^10.0", ReferenceRange(high=amount("10.0"), text="10.0")),
        *((each, ReferenceRange(text=each)) for each in ("negative", "5.1-3.5", "3,5 - 5,1", "0-10 mg/L")),
        ("13&18^M", ReferenceRange(text="13-18 M")),
        ("up to\\X07\\ 10", ReferenceRange(text="up to 10")),
    ],
)
def test_obx_reference_ranges_parsed(text: str, meant: ReferenceRange) -> None:
    [one] = report(OBR, f"OBX|1|NM|718-7^Hb^LN||4|g/L|{text}|H~A|||F").observations
    assert (one.reference_ranges, one.flags) == ((meant,), ("H", "A"))


def test_obx_status_codes_mapped() -> None:
    """A deleted, wrong or missing result (OBX-11 X, D, W, N) is a problem for an operator; one preliminary makes all partial."""
    given = {"F": "final", "C": "amended", "P": "preliminary", "R": "preliminary", "S": "preliminary", "I": "registered"}
    for code, meant in given.items():
        [one] = report(OBR, HB[:-1] + code).observations
        assert one.status == ObservationStatus(meant)
    for code in "XDWN":
        assert "operator" in problem(OBR, HB[:-1] + code)
    assert report(OBR, HB, "OBX|2|NM|777-3^Plt^LN||4||||||P").status is ReportStatus.PARTIAL


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
    ["^application^PDF^Base64^", "^AP^PDF^BASE64^", "LIS^TEXT^^Base64^", "PDF^Base64^", "^application^pdf^Base64^\\X0D\\"],
)
def test_ed_document_spelling_variants_read(field: str) -> None:
    found = report(OBR, f"OBX|1|ED|PDF^Printed form^L||{field}JVBERi0xLjQK||||||F")
    assert found.observations == ()
    [document] = found.documents
    assert (document.content, document.content_type, document.title) == (b"%PDF-1.4\n", "application/pdf", "Printed form")


def test_rp_document_link_read_invalid_url_rejected() -> None:
    [document] = report(OBR, "OBX|1|RP|PDF||https://lis.example/r/1.pdf^^application^PDF||||||F").documents
    assert document.url == "https://lis.example/r/1.pdf"
    for wrong in ("\\\\share\\r.pdf", "http://[::1"):
        assert "not a web address" in problem(OBR, f"OBX|1|RP|PDF||{wrong}||||||F")


@pytest.mark.parametrize("odd", ["9" * 201, "7\\X09\\7"])
def test_ack_invalid_accession_number_skipped(odd: str) -> None:
    """A filler number that is too long or holds control characters does not spoil the rest of the acknowledgement."""
    answer = parse_ack(parse_message(f"{MSH}\rMSA|AA|M1\rORC|OK|{L1}|{odd}\rORC|OK|{L2}|77\r"))
    assert answer is not None
    assert answer.accessions == ((L2, "77"),)


def test_order_found_by_key_filler_number_or_barcode() -> None:
    """A document of an order completes none of its lines."""
    found = report(OBR.replace(L1, R1), PDF)
    assert (found.order, found.lines, found.items, found.completes) == (R1, (), (), ())
    found = report(OBR.replace(L1, "").replace("|T|", "|HB|"), "SPM|1|0001", HB)
    assert (found.lines, found.accession, found.barcode, found.items) == ((), "F1", "0001", ("HB",))


def test_rejected_specimen_becomes_rejection() -> None:
    """Results behind an SPM segment that comes first are results, not a rejected specimen."""
    [part] = parts(OBR, f"SPM|1|0001|||{'|' * 16}RH^^HL70490")
    assert part.content == LabRejection(
        accession="F1",
        barcode="0001",
        not_performed=(NotPerformed(line=L1, reason="the specimen is haemolysed"),),
        collect_again=True,
        patient=ReportedPatient(identifiers=(Identifier(value="X"),)),
    )
    assert "both results and a rejected specimen" in problem(OBR, HB, f"SPM|1||||{'|' * 16}RH")
    assert len(report(OBR, "SPM|1|0001", HB, "OBX|2|NM|777-3^Plt^LN||5||||||F").observations) == 2


def test_order_groups_are_apart_and_complete_a_line_together() -> None:
    """An invalid one does not affect others; two OBR groups of one order line complete it only when both are final."""
    first, second = parts(OBR, HB.replace("|4|", "|3,9|"), OBR.replace(L1, L2), HB)
    assert (first.problem or "").startswith("OBR 1: OBX 1 has an invalid number")
    assert second.problem is None
    open_one = OBR.replace("|T|", "|T2|").replace("|||F", "|||P")
    final, other = (part.content for part in parts(OBR, HB, open_one, HB[:-1] + "P"))
    assert isinstance(final, LabReport)
    assert (final.status, final.completes) == (ReportStatus.FINAL, ())
    assert isinstance(other, LabReport)
    assert other.completes is None


def test_multiline_text_and_notes_joined() -> None:
    """A number on a line of its own belongs to the text, whatever unit stands beside it."""
    text = "OBX|1|TX|630-4^Culture^LN|1|{}|{}|||||F"
    lines = (text.format("colonies:", ""), text.format("50", "g/L"))
    [one] = report(OBR, "NTE|1||of the report", *lines, "NTE|1||of it").observations
    assert (one.value_string, one.note, one.id) == ("colonies:\n50 g/L", "of the report\nof it", "630-4/1")


@pytest.mark.parametrize(
    ("collected", "more", "zone", "effective"),
    [
        # no midnight is invented: OBR-7, OBX-14 and SPM-17
        ("2024051708", (HB,), None, "2024-05-17"),
        ("20240517", (HB,), None, "2024-05-17"),
        ("", (f"{HB}|||20240516",), None, "2024-05-16"),
        ("", (HB, f"SPM|1|0001|{'|' * 14}20240515^20240516"), None, "2024-05-15"),
        ("20240517083000", (HB,), "Europe/Moscow", "2024-05-17 08:30:00+03:00"),
    ],
)
def test_time_is_as_precise_as_it_was_sent(collected: str, more: tuple[str, ...], zone: str | None, effective: str) -> None:
    found = report(OBR.replace("20240517083000+0300", collected), *more, zone=zone).effective
    assert (found.text if isinstance(found, PartialDate) else str(found)) == effective


def test_day_of_issue_gives_way_to_message_time() -> None:
    found = report(OBR.replace("20240518090000+0300", "20240518"), f"{HB}||||||||20240518", zone="Europe/Moscow")
    assert (found.issued.hour, found.issued.minute) != (0, 0)
    assert found.observations[0].issued is None


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ((OBR.replace("+0300", ""), HB), "no time zone"),
        ((OBR.replace("20240517", "20241399"), HB), "collection time that"),
        *(((OBR.replace("20240517083000+0300", far), HB), "out of range")
          for far in ("00010101000000+0000", "00010102010000+1400", "99991231235959-1200")),
        ((OBR.replace("|||F", "|||Q"), HB), "unknown status"),
        ((OBR.replace(L1, "").replace("F1", ""), HB), "no reference to an order"),
        ((OBR, HB.replace("718-7^Hb^LN", "")), "no code"),
        ((OBR, HB.replace("|4||", "|4|g\\X00\\L|")), "control character in OBX-6"),
        ((OBR, HB.replace("718-7", "718\\X07\\-7")), "control character in a code"),
        ((OBR, PDF.replace("JVBERi0xLjQK", "%%%")), "does not match its encoding"),
        ((), "has no OBR"),
    ],
)  # fmt: skip
def test_unreadable_result_gives_reason(segments: tuple[str, ...], why: str) -> None:
    assert why in problem(*segments)


MAPPING = """
[results]
decimal_comma = true
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
    assert value("ST", "5.1", "10^9/L", mapping="[results]\nnumeric_text = false", tmp_path=tmp_path) == "5.1 10^9/L"
