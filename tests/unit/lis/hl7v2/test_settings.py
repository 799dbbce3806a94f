"""Settings and mapping files: what is wrong is a reason that is shown, and the page and the example tell the truth."""

import os
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from lab_agent.domain.lab_messages import ReportedObservation, ReportedPatient, ReportStatus
from lab_agent.domain.values import CodeableConcept, Coding, Quantity
from lab_agent.lis.hl7v2 import Hl7v2Settings
from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.orders.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.parser import decode_message
from lab_agent.lis.registry import load_adapters
from lab_agent.lis.testing import make_order, make_report
from tests.harness.paths import ROOT

PAGE = (ROOT / "docs" / "adapters-hl7v2.md").read_text()
BASE = {"orders": {"role": "client", "port": 1}, "folder": "x", "duplicates": "msh10"}


def reason(**keys: object) -> str:
    adapters = load_adapters({"hl7v2": {**BASE, **keys}}, "hl7v2")
    return adapters.statuses[0].reason or ""


def test_adapter_found_through_entry_point() -> None:
    assert reason() == ""
    [status] = load_adapters({"hl7v2": BASE}, "hl7v2").statuses
    assert status.idempotent is True


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"duplicates": "perhaps"}, "duplicates"),
        ({"encoding": "klingon"}, "code page"),
        ({"encoding": "utf-16"}, "code page"),
        ({"time_zone": "Moscow"}, "time zone"),
        ({"orders": {"role": "client", "port": 0}}, "port of the LIS"),
        ({"results": {"role": "server", "port": 1, "tls": {}}}, "tls.certificate"),
        ({"results": {"role": "server", "port": 1, "allow": ["nowhere"]}}, "allow"),
        ({"max_unfinished_bytes": 2000}, "max_unfinished_bytes"),
        ({"mapping": "/nowhere.toml"}, "cannot be read"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_invalid_settings_give_reason(keys: dict[str, object], why: str) -> None:
    assert why in reason(**keys)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[fields.PID]\n5 = '{patient.familly}'\n", "patient.familly"),
        ("[fields.PID]\n8 = '{patient.sex|sexes}'\n", "[tables.sexes]"),
        ("[fields.ZLBX]\n1 = 'x'\n", "not a segment name"),
        ("[fields.PID]\n300 = 'x'\n", "PID-300"),
        ('[fields.PID]\n5 = "x\\rZZZ|1"\n', "control character"),
        ("[orders.OML]\nline = ['ORC', 'ZXX']\n", "[fields.ZXX]"),
        ("[results]\nline = ['OBR']\n", "not a field path"),
        ("[tables.report_status]\nF = 'finished'\n", "finished"),
        ('[[results.ignore]]\npath = "OBX-3.1"\nvalue = "08001"\n', "[[results.leave_out]]"),
        ("[[results.leave_out]]\n", "results.leave_out[0]"),
        ('[tables.flags]\nX = "reactive"\n', "tables.flags.X"),
        ("[result]\n", "result"),
        ("not toml", "not TOML"),
    ],
)
def test_invalid_mapping_file_gives_reason(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    assert why in reason(mapping=str(tmp_path / "map.toml"))


def test_example_mapping_file_is_valid() -> None:
    settings = Hl7v2Settings.model_validate({**BASE, "mapping": ROOT / "config" / "hl7v2" / "mapping.toml"})
    order = make_order(3)
    message = decode_message(OrderBuilder(settings).build_order(order, order.key, datetime.now(UTC)), "utf-8")
    [first, *_] = [segment for segment in message.segments if segment.name == "ZLB"]
    assert (first.text(1), first.text(2)) == (order.lines[0].key, order.contract)
    assert "SPM" in {segment.name for segment in message.segments}


def test_orm_order_message_places_all_values() -> None:
    """The older ORM^O01 order message has a place for everything too."""
    settings = Hl7v2Settings.model_validate({**BASE, "order_message": "ORM"})
    order = make_order(3)
    message = decode_message(OrderBuilder(settings).build_order(order, order.key, datetime.now(UTC)), "utf-8")
    obr = message.first_segment("OBR")
    assert message.message_type == ("ORM", "O01")
    assert obr
    [specimen] = [one for one in order.specimens if one.id in order.lines[0].specimens]
    assert (obr.text(15), obr.text(19)) == ("100", specimen.containers[0].barcode)


def test_settings_fields_described_or_documented() -> None:
    for name, field in Hl7v2Settings.model_fields.items():
        assert field.description, name
    named = set(re.findall(r"`(\w+)`", PAGE))
    must = {"duplicates", "acknowledgement", "answer_results", "time_zone", "encoding", "unencodable", "keep_days", "retry_codes"}
    assert must <= named & set(Hl7v2Settings.model_fields)


def test_docs_page_names_default_field_map_places() -> None:
    fields = default_field_map().fields
    assert fields["ORC"][2] == fields["OBR"][2] == "{line.key}"
    for place in re.findall(r"\| (?:line key|requisition|contract|old order number) \| (.+?) \|", PAGE):
        for one in place.split(", "):
            name, _, number = one.partition("-")
            assert fields[name][int(number)], one


def test_connection_unknown_key_rejected() -> None:
    with pytest.raises(ValidationError):
        Hl7v2Settings.model_validate({**BASE, "orders": {"role": "client", "port": 1, "hosst": "x"}})


def test_archive_purges_old_keeps_preliminary_values(tmp_path: Path) -> None:
    """The message archive purges old messages, and keeps stored values until they are final."""
    archive = MessageArchive(tmp_path / "own", keep_days=2)
    archive.open()
    now = datetime.now(UTC)
    old, young = (archive.store_accepted(b"x", now) for _ in range(2))
    past = (now - timedelta(days=3)).timestamp()
    os.utime(old, (past, past))
    archive.purge()
    assert not old.exists()
    assert young.exists()
    final = make_report(1, make_order(1))
    early = replace(final, status=ReportStatus.PRELIMINARY)
    archive.save_open_report(early)
    kept = archive.load_open_report(early.report_id)
    assert kept
    assert kept.observations == early.observations
    assert kept.documents == ()
    archive.save_open_report(final)
    assert archive.load_open_report(early.report_id) is None


def test_archive_keeps_values_without_their_patient(tmp_path: Path) -> None:
    """What is not final lies in a plain file: whose it is stays out of it."""
    archive = MessageArchive(tmp_path / "own", keep_days=2)
    archive.open()
    patient = ReportedPatient(birth_date=date(1971, 12, 24), gender="female")
    archive.save_open_report(replace(make_report(1, make_order(1)), status=ReportStatus.PRELIMINARY, patient=patient))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert written
    assert b"1971" not in written


def test_archive_keeps_no_free_text(tmp_path: Path) -> None:
    """A text or comment may name the patient, and the adapter has no keys."""
    archive = MessageArchive(tmp_path / "own", keep_days=2)
    archive.open()
    full = replace(make_report(1, make_order(1)), status=ReportStatus.PRELIMINARY)
    number = ReportedObservation(code=Coding(code="GLU"), value_quantity=Quantity(value=Decimal("5.10")))
    text = ReportedObservation(code=Coding(code="T"), value_string="Mrs Doe")
    concept = ReportedObservation(code=Coding(code="C"), value_codeable_concept=CodeableConcept(text="Mrs Doe"))
    archive.save_open_report(replace(full, observations=(number, text, replace(number, id="2", note="Mrs Doe"), concept)))
    assert b"Doe" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    kept = archive.load_open_report(full.report_id)
    assert kept
    assert kept.observations == (number,)
