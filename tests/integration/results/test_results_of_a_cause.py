"""All results that wait for one cause, decided about together: but for those of which each needs a look."""

from __future__ import annotations

from datetime import date

import pytest

from lab_agent import exact_json
from lab_agent.domain.lab_messages import ReportedPatient
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import ReportState
from lab_agent.errors import InputError
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.serialization.identity import pack_identity
from lab_agent.workflow.operator_groups import GroupAction
from lab_agent.workflow.operator_held_groups import ResultGroup, dismiss_results, preview_results, release_results
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report

ANNA = {"family": "Sample", "gender": "female", "birth_date": "1980-02-29", "identifiers": []}
OTHER = ReportedPatient(birth_date=date(1971, 12, 24), gender="male")
HELD = ReportState.HELD


async def release(bench: ResultsBench, reason: HoldReason) -> int:
    group, now = ResultGroup(HELD, reason), bench.clock.now()
    outcome = await release_results(bench.store, group, bench.matcher, by="ann", note="looked at", now=now)
    await bench.run_until_idle()
    return outcome.done


async def test_results_of_one_cause_are_released_and_no_other(bench: ResultsBench) -> None:
    for name in ("a", "b"):
        odd = await bench.receive(make_report(report_id=name, observations=()), name)
        assert odd.hold_reason is HoldReason.QUESTION
    await bench.receive(make_report(haemoglobin("1", specimen="no such tube"), report_id="c"), "c")
    preview = await preview_results(bench.store, ResultGroup(HELD, HoldReason.QUESTION), GroupAction.RELEASE)
    assert (preview.number, preview.left_out, preview.needs_note) == (2, (), True)
    assert await release(bench, HoldReason.QUESTION) == 2
    assert [(await bench.get_report(name)).state for name in ("a", "b", "c")] == [ReportState.DELIVERED] * 2 + [HELD]


async def test_results_of_another_patient_are_released_one_by_one_only(bench: ResultsBench) -> None:
    def know_patient(uow: UnitOfWork) -> None:
        uow.vault.save_identity(ORDER, pack_identity(b"[]", exact_json.dumps(ANNA)), at=NOW)
        uow.commit()

    await bench.store.run(know_patient)
    held = await bench.receive(make_report(patient=OTHER))
    assert held.hold_reason is HoldReason.PATIENT_MISMATCH
    group = ResultGroup(HELD, HoldReason.PATIENT_MISMATCH)
    preview = await preview_results(bench.store, group, GroupAction.RELEASE)
    assert (preview.number, preview.does, [each.number for each in preview.left_out]) == (0, (), [1])
    with pytest.raises(InputError, match="patient of each has to be compared"):
        await release(bench, HoldReason.PATIENT_MISMATCH)
    assert (await bench.get_report("m1")).state is HELD
    assert await bench.clinic_reports() == []
    assert (await preview_results(bench.store, group, GroupAction.DISMISS)).number == 1
    assert (await dismiss_results(bench.store, group, by="ann", note="another patient's", now=bench.clock.now())).done == 1


async def test_results_without_legal_form_or_first_version_stay(bench: ResultsBench) -> None:
    now = bench.clock.now()
    for reason in (HoldReason.DEFECT, HoldReason.WAITS_FOR_VERSION):
        with pytest.raises(InputError, match="Nothing was changed"):
            await release(bench, reason)
    waits = ResultGroup(HELD, HoldReason.WAITS_FOR_VERSION)
    with pytest.raises(InputError, match="follow by themselves"):
        await dismiss_results(bench.store, waits, by="ann", note="away", now=now)
