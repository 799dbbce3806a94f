"""A result that names another patient than its order waits, and whose it is never lies beside it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, insert

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.lab_messages import LabRejection, NotPerformed, ReportedPatient
from lab_agent.domain.report_records import HoldReason, ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.values import Identifier, PartialDate
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.sql.staging_tables import make_tables
from lab_agent.workflow import operator_results
from lab_agent.workflow.result_inbox import StoreInbox
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, HttpLis, signed_headers
from tests.harness.hl7_results import results_over_mllp
from tests.harness.programs import free_port
from tests.harness.results import LOINC, NOW, ORDER, ResultsBench, haemoglobin, make_report, open_bench

ANNA = {"family": "Sample", "gender": "female", "birth_date": "1980-02-29", "identifiers": [{"system": "urn:p", "value": "1"}]}
OTHER = ReportedPatient(birth_date=date(1971, 12, 24), gender="male", identifiers=(Identifier(system="urn:p", value="31415"),))
SAME = ReportedPatient(birth_date=PartialDate("1980"), gender="female", identifiers=(Identifier(value="0815"),))


@pytest.fixture
async def anna(bench: ResultsBench) -> ResultsBench:
    await bench.know_patient(**ANNA)
    return bench


async def _reported(bench: ResultsBench, report: ReportRecord) -> bytes | None:
    return await bench.store.run(lambda uow: uow.vault.reported_patient(report.key))


async def test_other_patient_is_held_with_fields_named(anna: ResultsBench) -> None:
    held = await anna.receive(make_report(patient=OTHER))
    assert (held.state, held.hold_reason) == (ReportState.HELD, HoldReason.PATIENT_MISMATCH)
    assert "(birth date, sex, identifier)" in (held.reason or "")
    assert await anna.clinic_reports() == []


async def test_same_patient_is_delivered_without_a_word(anna: ResultsBench) -> None:
    assert (await anna.receive(make_report(patient=SAME))).state is ReportState.DELIVERED
    assert anna.event_texts("warning") == []


async def test_whose_it_is_lies_in_the_vault_alone(anna: ResultsBench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    held = await anna.receive(make_report(patient=OTHER))
    assert b"31415" in (await _reported(anna, held) or b"")
    anna.store._data.reported_patients.clear()
    everything_else = repr(anna.store._data) + caplog.text
    assert [word for word in ("31415", "1971") if word in everything_else] == []


async def test_release_counts_for_this_order(anna: ResultsBench) -> None:
    held = await anna.receive(make_report(patient=OTHER))
    assert (await anna.release(held)).moved
    assert (await anna.get_report("m1")).state is ReportState.DELIVERED
    assert len(await anna.clinic_reports()) == 1


async def test_release_answers_no_other_question(anna: ResultsBench) -> None:
    """An operator who looked at the patient has not looked at the values."""
    held = await anna.receive(make_report(patient=OTHER, effective=NOW.replace(year=1026)))
    assert held.hold_reason is HoldReason.PATIENT_MISMATCH
    await anna.release(held)
    asked = await anna.get_report("m1")
    assert asked.hold_reason is HoldReason.QUESTION
    await anna.release(asked)
    assert (await anna.get_report("m1")).state is ReportState.DELIVERED


async def test_answer_to_another_question_does_not_answer_it(anna: ResultsBench) -> None:
    """Held for something else while nothing was compared, then the setting changes: the patient is asked about."""
    anna.settings = anna.settings.model_copy(
        update={"results": anna.settings.results.model_copy(update={"patient_mismatch": "ignore"})}
    )
    asked = await anna.receive(make_report(patient=OTHER, effective=NOW.replace(year=1026)))
    assert asked.hold_reason is HoldReason.QUESTION
    anna.settings = anna.settings.model_copy(
        update={"results": anna.settings.results.model_copy(update={"patient_mismatch": "hold"})}
    )
    await anna.release(asked)
    assert (await anna.get_report("m1")).hold_reason is HoldReason.PATIENT_MISMATCH


async def test_later_version_is_compared_anew(anna: ResultsBench) -> None:
    assert (await anna.receive(make_report(patient=SAME, version=1))).state is ReportState.DELIVERED
    held = await anna.receive(make_report(haemoglobin("7.7"), patient=OTHER, version=2))
    assert held.hold_reason is HoldReason.PATIENT_MISMATCH
    assert (await anna.receive(make_report(haemoglobin("8.8"), patient=SAME, version=3))).state is ReportState.DELIVERED
    assert (await anna.get_report("m2")).state is ReportState.SUPERSEDED


async def test_release_of_one_version_releases_no_other(anna: ResultsBench) -> None:
    await anna.release(await anna.receive(make_report(patient=OTHER, version=1)))
    second = await anna.receive(make_report(haemoglobin("7.7"), patient=OTHER, version=2))
    assert second.hold_reason is HoldReason.PATIENT_MISMATCH


async def test_rejection_for_another_patient_cancels_nothing(anna: ResultsBench) -> None:
    rejection = LabRejection(order=ORDER, not_performed=(NotPerformed(line=anna.line_key(0), reason="clotted"),), patient=OTHER)
    held = await anna.receive(rejection)
    assert held.hold_reason is HoldReason.PATIENT_MISMATCH
    assert await anna.line_states() == ["accepted"] * 3
    await anna.release(held)
    assert (await anna.line_states())[0] == "cancelled"


async def test_result_given_to_another_order_is_compared_with_that(anna: ResultsBench) -> None:
    """The release was for one order; an operator who moves the result to it has not answered for its patient."""
    lost = await anna.receive(make_report(order=OrderKey("RNOBODY"), patient=OTHER))
    assert lost.state is ReportState.UNMATCHED
    who: dict[str, Any] = {"by": "ann", "note": "read on paper", "now": anna.clock.now()}
    decided = await operator_results.match_result(anna.store, anna.matcher, lost.key, ORDER, **who)
    assert decided.report.hold_reason is HoldReason.PATIENT_MISMATCH


async def test_note_delivers_with_a_warning() -> None:
    async with open_bench({"patient_mismatch": "note"}) as bench:
        await bench.know_patient(**ANNA)
        assert (await bench.receive(make_report(patient=OTHER))).state is ReportState.DELIVERED
        assert len(bench.event_texts("warning")) == 1
        assert "(birth date, sex, identifier)" in bench.event_texts("warning")[0]


async def test_ignore_delivers_in_silence() -> None:
    async with open_bench({"patient_mismatch": "ignore"}) as bench:
        await bench.know_patient(**ANNA)
        assert (await bench.receive(make_report(patient=OTHER))).state is ReportState.DELIVERED
        assert bench.event_texts("warning") == []


@pytest.mark.parametrize(
    ("patient", "fields"),
    [
        (OTHER, "birth date, sex"),
        (ReportedPatient(gender="male"), "sex"),
        (ReportedPatient(birth_date=PartialDate("1981")), "birth date"),
        (ReportedPatient(family="Other", identifiers=OTHER.identifiers), None),
        (SAME, None),
    ],
)
async def test_anonymous_order_compared_by_birth_date_and_sex(
    bench: ResultsBench, patient: ReportedPatient, fields: str | None
) -> None:
    await bench.know_patient(**ANNA | {"anonymous": True, "family": "1234567890", "given": ["-"]})
    got = await bench.receive(make_report(patient=patient))
    assert got.state is (ReportState.DELIVERED if fields is None else ReportState.HELD)
    assert got.hold_reason is (None if fields is None else HoldReason.PATIENT_MISMATCH)
    assert fields is None or fields in str(got.reason)


async def test_purged_identity_is_said_in_the_timeline(bench: ResultsBench) -> None:
    assert (await bench.receive(make_report(patient=OTHER))).state is ReportState.DELIVERED
    assert "is not kept any more" in bench.event_texts("warning")[0]
    assert len(bench.event_texts("warning")) == 1


async def test_whose_it_is_is_deleted_with_its_result_finished(anna: ResultsBench) -> None:
    delivered = await anna.receive(make_report(patient=SAME))
    waiting = await anna.receive(make_report(report_id="two", patient=OTHER))
    later = anna.clock.now() + timedelta(days=31)
    await anna.store.run(lambda uow: (uow.purge.identities(before=later), uow.commit()))
    assert await _reported(anna, delivered) is None
    assert await _reported(anna, waiting) is not None


async def test_patient_of_whom_nothing_is_said_is_no_patient(bench: ResultsBench) -> None:
    delivered = await bench.receive(make_report(patient=ReportedPatient()))
    assert delivered.state is ReportState.DELIVERED
    assert await _reported(bench, delivered) is None
    assert bench.event_texts("warning") == []


_TIMES = {"effective": "2026-03-03T10:00:00Z", "issued": "2026-03-03T10:00:00Z"}
_COLUMNS = {"report_id": "Id", "order": "Order", "effective": "At", "code": "Code", "value": "Value"} | {
    f"patient_{field}": field.title() for field in ("family", "given", "birth_date", "sex")
}
Named = dict[str, str]
"""What is said of a patient: family, given, birth_date, sex."""
Door = Callable[[ResultsBench, Path, Named], Awaitable[None]]


async def _drop(bench: ResultsBench, folder: Path, name: str, content: str) -> None:
    for each in ("orders", "results"):
        (folder / each).mkdir()
    table = {"orders": folder / "orders", "results": folder / "results", "settle": 0, "csv": {"columns": _COLUMNS}}
    adapter = FolderAdapter(FolderSettings.model_validate(table), "lis")
    await adapter.start(StoreInbox(bench.store, bench.clock, "lis"))
    (folder / "results" / name).write_text(content, encoding="utf-8")
    assert await adapter.collect() == 1
    await adapter.stop()


def _json_of(named: Named) -> str:
    given = {"given": [named["given"]]} if "given" in named else {}
    patient = {**{{"sex": "gender"}.get(field, field): text for field, text in named.items()}, **given}
    value = {"code": {"system": LOINC, "code": "718-7"}, "value_string": "1"}
    return json.dumps(
        {"report_id": "B1", "status": "final", "order": ORDER, **_TIMES, "patient": patient, "observations": [value]}
    )


async def _by_json_file(bench: ResultsBench, folder: Path, named: Named) -> None:
    await _drop(bench, folder, "a.json", _json_of(named))


async def _by_csv_file(bench: ResultsBench, folder: Path, named: Named) -> None:
    row = {"report_id": "B1", "order": ORDER, "effective": _TIMES["effective"], "code": "718-7", "value": "1"}
    row |= {f"patient_{field}": text for field, text in named.items()}
    rows = (_COLUMNS.values(), (row.get(field, "") for field in _COLUMNS))
    await _drop(bench, folder, "a.csv", "".join(";".join(cells) + "\n" for cells in rows))


async def _by_hl7_message(bench: ResultsBench, folder: Path, named: Named) -> None:
    born = named.get("birth_date", "").replace("-", "")
    patient = f"PID|1||||{named.get('family', '')}^{named.get('given', '')}||{born}|{named.get('sex', '')[:1]}"
    obr = "OBR|1||A-1|001.001|||20260303080000+0000|||||||||||||||20260303093000+0000|||F"
    async with results_over_mllp(bench, folder) as results:
        assert await results.send(obr, "OBX|1|NM|718-7^Hb^LN||13.2|g/dL|||||F", patient=patient) == "AA"


async def _by_http_post(bench: ResultsBench, folder: Path, named: Named) -> None:
    lis, body = HttpLis(free_port()), _json_of(named).encode()
    table = {"url": lis.url, "secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, "port": lis.agent_port}
    adapter = HttpAdapter(HttpSettings.model_validate({**table, "refused_folder": folder / "refused"}), "lis")
    await adapter.start(StoreInbox(bench.store, bench.clock, "lis"))
    assert (await asyncio.to_thread(lis.post, body, signed_headers(LIS_SECRET, "m1", body), "/messages"))[0] == 200
    await adapter.stop()
    await asyncio.to_thread(lis.close)


async def _by_sql_row(bench: ResultsBench, folder: Path, named: Named) -> None:
    url, tables = f"sqlite:///{folder / 'lis.db'}", make_tables("lab_", None)
    engine = create_engine(url)
    tables.metadata.create_all(engine)
    head = {"report_id": "B1", "order_key": ORDER, "status": "final", **{f"{name}_at": time for name, time in _TIMES.items()}}
    with engine.begin() as connection:
        patient = {f"patient_{field}": text for field, text in named.items()}
        connection.execute(insert(tables.results).values(id=1, ready=1, **head, **patient))
        connection.execute(insert(tables.values).values(result_id=1, position=0, code="718-7", value="1"))
    adapter = SqlAdapter(SqlSettings.model_validate({"url": url}), "lis")
    await adapter.start(StoreInbox(bench.store, bench.clock, "lis"))
    assert await adapter.collect() == 1
    await adapter.stop()
    engine.dispose()


DOORS = (_by_json_file, _by_csv_file, _by_hl7_message, _by_http_post, _by_sql_row)


@pytest.mark.parametrize(
    ("named", "differing"),
    [
        ({"family": "Meier", "given": "Anna"}, "(name)"),
        ({"family": "Müller-Sample", "given": "Berta"}, "(name)"),
        ({"family": "Meier Anna"}, "(name)"),
        ({"family": "Meier", "birth_date": "1971-12-24", "sex": "male"}, "(name, birth date, sex)"),
        ({"birth_date": "1971", "sex": "female"}, "(birth date)"),
        ({"family": "MUELLER", "given": "ANNA"}, None),
        ({"family": "Anna", "given": "Muller-Sample"}, None),
        ({"family": "Sample, A. Maria"}, None),
        ({"family": "OBRIEN", "given": "Anna", "birth_date": "1980-02-29"}, None),
        ({"family": "-", "given": ".", "sex": "female"}, None),
    ],
)
@pytest.mark.parametrize("door", DOORS)
async def test_result_naming_another_patient_is_held(
    bench: ResultsBench, tmp_path: Path, door: Door, named: Named, differing: str | None
) -> None:
    """Over every adapter alike; the name itself goes nowhere but into the vault."""
    names = {"family": "Müller-Sample", "given": ["Anna", "Maria"], "other_names": [{"use": "maiden", "family": "O'Brien"}]}
    await bench.know_patient(**ANNA | names)
    await door(bench, tmp_path, named)
    await bench.run_until_idle()
    (report,) = bench.store._data.reports.values()
    assert report.hold_reason is (HoldReason.PATIENT_MISMATCH if differing else None)
    assert report.state is (ReportState.HELD if differing else ReportState.DELIVERED)
    assert (differing or "") in (report.reason or "")
    assert json.loads(await _reported(bench, report) or b"").get("family") == named.get("family")
    assert b"Anna" not in report.body
    assert "Meier" not in repr((report, bench.store._data.events))
