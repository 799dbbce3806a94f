"""Settings and mapping files: what is wrong is a reason that is shown, and the page and the example tell the truth."""

import os
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from lab_agent.lis.hl7v2 import Hl7v2Settings
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.orders.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.parser import Message, decode_message
from lab_agent.lis.lab_messages import ReportedObservation, ReportedPatient, ReportStatus
from lab_agent.lis.registry import load_adapters
from lab_agent.lis.testing import make_order, make_report
from lab_agent.shared.values import CodeableConcept, Coding, Quantity
from tests.harness.paths import ROOT

BASE = {"orders": {"role": "client", "port": 1}, "folder": "x", "duplicates": "msh10"}


def reason(**keys: object) -> str:
    adapters = load_adapters({"hl7v2": {**BASE, **keys}}, "hl7v2")
    return adapters.statuses[0].reason or ""


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
        ({"orders": {"role": "client", "port": 1, "hosst": "x"}}, "hosst"),
    ],
)
def test_invalid_settings_give_reason(keys: dict[str, object], why: str) -> None:
    assert why in reason(**keys)
    assert reason() == ""


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


def test_example_mapping_and_older_message_place_all_values() -> None:
    order = make_order(3)
    [specimen] = [one for one in order.specimens if one.id in order.lines[0].specimens]

    def built(**keys: object) -> Message:
        builder = OrderBuilder(Hl7v2Settings.model_validate({**BASE, **keys}))
        return decode_message(builder.build_order(order, order.key, datetime.now(UTC)), "utf-8")

    message = built(mapping=ROOT / "config" / "hl7v2" / "mapping.toml")
    [first, *_] = [segment for segment in message.segments if segment.name == "ZLB"]
    assert (first.text(1), first.text(2)) == (order.lines[0].key, order.contract)
    assert "SPM" in {segment.name for segment in message.segments}
    message = built(order_message="ORM")
    obr = message.first_segment("OBR")
    assert message.message_type == ("ORM", "O01")
    assert obr
    assert (obr.text(15), obr.text(19)) == ("100", specimen.containers[0].barcode)


@pytest.fixture
def archive(tmp_path: Path) -> MessageArchive:
    made = MessageArchive(tmp_path / "own", keep_days=2)
    made.open()
    return made


def test_archive_purges_old_keeps_preliminary_values(archive: MessageArchive) -> None:
    """The message archive purges old messages, and keeps stored values until they are final."""
    now = datetime.now(UTC)
    old, young = (archive.store_accepted(b"x", now) for _ in range(2))
    past = (now - timedelta(days=3)).timestamp()
    os.utime(old, (past, past))
    archive.purge()
    assert (old.exists(), young.exists()) == (False, True)
    final = make_report(1, make_order(1))
    archive.save_open_report(replace(final, status=ReportStatus.PRELIMINARY))
    kept = archive.load_open_report(final.report_id)
    assert kept
    assert (kept.observations, kept.documents) == (final.observations, ())
    archive.save_open_report(final)
    assert archive.load_open_report(final.report_id) is None


def test_archive_keeps_neither_patient_nor_free_text(archive: MessageArchive, tmp_path: Path) -> None:
    """What is not final lies in a plain file, and the adapter has no keys: a text or comment may name the patient."""
    number = ReportedObservation(code=Coding(code="GLU"), value_quantity=Quantity(value=Decimal("5.10")))
    text = ReportedObservation(code=Coding(code="T"), value_string="Mrs Doe")
    concept = ReportedObservation(code=Coding(code="C"), value_codeable_concept=CodeableConcept(text="Mrs Doe"))
    full = replace(
        make_report(1, make_order(1)),
        status=ReportStatus.PRELIMINARY,
        patient=ReportedPatient(birth_date=date(1971, 12, 24), gender="female"),
        observations=(number, text, replace(number, id="2", note="Mrs Doe"), concept),
    )
    archive.save_open_report(full)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert written
    assert not any(each in written for each in (b"Doe", b"1971"))
    kept = archive.load_open_report(full.report_id)
    assert kept
    assert kept.observations == (number,)
