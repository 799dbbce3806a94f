"""A result that names another patient than its order waits, and whose it is never lies beside it."""

from __future__ import annotations

import logging
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent import exact_json
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.lab_messages import LabRejection, NotPerformed, ReportedPatient
from lab_agent.domain.report_records import HoldReason, ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.values import Identifier, PartialDate
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.serialization.identity import pack_identity
from lab_agent.workflow import operator_results
from lab_agent.workflow.result_inbox import StoreInbox
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report, open_bench

ANNA = {"family": "Sample", "gender": "female", "birth_date": "1980-02-29", "identifiers": [{"system": "urn:p", "value": "1"}]}
OTHER = ReportedPatient(birth_date=date(1971, 12, 24), gender="male", identifiers=(Identifier(system="urn:p", value="31415"),))
SAME = ReportedPatient(birth_date=PartialDate("1980"), gender="female", identifiers=(Identifier(value="0815"),))


async def _know_patient(bench: ResultsBench, order: OrderKey = ORDER, **changes: Any) -> None:
    def write(uow: Any) -> None:
        identity = pack_identity(b"[]", exact_json.dumps({**ANNA, **changes}))
        uow.vault.save_identity(order, identity, at=NOW)
        uow.commit()

    await bench.store.run(write)


@pytest.fixture
async def anna(bench: ResultsBench) -> ResultsBench:
    await _know_patient(bench)
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
        await _know_patient(bench)
        assert (await bench.receive(make_report(patient=OTHER))).state is ReportState.DELIVERED
        assert len(bench.event_texts("warning")) == 1
        assert "(birth date, sex, identifier)" in bench.event_texts("warning")[0]


async def test_ignore_delivers_in_silence() -> None:
    async with open_bench({"patient_mismatch": "ignore"}) as bench:
        await _know_patient(bench)
        assert (await bench.receive(make_report(patient=OTHER))).state is ReportState.DELIVERED
        assert bench.event_texts("warning") == []


async def test_anonymous_order_is_never_compared(bench: ResultsBench) -> None:
    await _know_patient(bench, anonymous=True, family="1234567890", given=["-"])
    assert (await bench.receive(make_report(patient=OTHER))).state is ReportState.DELIVERED


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


_JSON = """{"report_id": "B1", "status": "final", "order": "RORDER", "effective": "2026-03-03T10:00:00Z",
"issued": "2026-03-03T10:00:00Z", "patient": {"birth_date": "1971", "gender": "female"},
"observations": [{"code": {"system": "http://loinc.org", "code": "718-7"}, "value_string": "1"}]}"""
_CSV = "Id;Order;At;Code;Value;Born;Sex\nB1;RORDER;2026-03-03T10:00:00Z;718-7;1;24.12.1971;F\n"


@pytest.mark.parametrize(("name", "content"), [("a.json", _JSON), ("a.csv", _CSV)])
async def test_patient_written_into_a_file_is_compared(anna: ResultsBench, tmp_path: Path, name: str, content: str) -> None:
    columns = {"report_id": "Id", "order": "Order", "effective": "At", "code": "Code", "value": "Value"}
    columns |= {"patient_birth_date": "Born", "patient_sex": "Sex"}
    for folder in ("orders", "results"):
        (tmp_path / folder).mkdir()
    folders = {"orders": tmp_path / "orders", "results": tmp_path / "results", "settle": 0}
    adapter = FolderAdapter(FolderSettings.model_validate({**folders, "csv": {"columns": columns}}), "lis")
    await adapter.start(StoreInbox(anna.store, anna.clock, "lis"))
    (tmp_path / "results" / name).write_text(content + "\n")
    assert await adapter.collect() == 1
    await adapter.stop()
    await anna.run_until_idle()
    (held,) = await anna.store.run(lambda uow: uow.reports.needing_operator())
    assert held.hold_reason is HoldReason.PATIENT_MISMATCH
    assert "(birth date)" in (held.reason or "")
    assert b"1971" not in held.body
