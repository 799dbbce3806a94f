"""A result that names another patient than its order waits, and whose it is never lies beside it."""

from __future__ import annotations

import json
import logging
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.lab_messages import LabRejection, LabReport, NotPerformed, ReportedPatient
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import ReportState
from lab_agent.shared.values import Identifier, PartialDate
from tests.harness.result_doors import DOORS, ResultMessage, open_door
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report, open_bench
from tests.integration.results.histories import Step, act, get, lines, now, play, release
from tests.integration.workflow.conftest import parametrize_first

ANNA = {"family": "Sample", "gender": "female", "birth_date": "1980-02-29", "identifiers": [{"system": "urn:p", "value": "1"}]}
OTHER = ReportedPatient(birth_date=date(1971, 12, 24), gender="male", identifiers=(Identifier(system="urn:p", value="31415"),))
SAME = ReportedPatient(birth_date=PartialDate("1980"), gender="female", identifiers=(Identifier(value="0815"),))
DELIVERED, MISMATCH, QUESTION = ReportState.DELIVERED, HoldReason.PATIENT_MISMATCH, HoldReason.QUESTION
ODD = {"effective": NOW.replace(year=1026)}
"""What an operator is asked about."""


@pytest.fixture
async def anna(bench: ResultsBench) -> ResultsBench:
    await bench.know_patient(**ANNA)
    return bench


async def reported(bench: ResultsBench, report: ReportRecord) -> bytes | None:
    return await bench.store.transact(lambda uow: uow.vault.reported_patient(report.key))


def everything_stored(bench: ResultsBench) -> str:
    """All that lies open in the database."""
    with bench.store._reading_engine.connect() as connection:
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars()
        return repr([connection.exec_driver_sql(f'SELECT * FROM "{name}"').all() for name in names.all()])


async def test_other_patient_is_held_and_released_for_this_order(anna: ResultsBench, caplog: pytest.LogCaptureFixture) -> None:
    """Whose it is lies in the vault alone, sealed; the reason names fields, and no value."""
    caplog.set_level(logging.DEBUG)
    held = await anna.receive(make_report(patient=OTHER))
    assert (held.state, held.hold_reason) == (ReportState.HELD, MISMATCH)
    assert "(birth date, sex, identifier)" in (held.reason or "")
    assert await anna.clinic_reports() == []
    assert b"31415" in (await reported(anna, held) or b"")
    assert [word for word in ("31415", "1971-12") if word in everything_stored(anna) + caplog.text] == []
    assert (await anna.release(held)).moved
    assert (await anna.get_report("m1")).state is DELIVERED
    assert len(await anna.clinic_reports()) == 1


def set_mismatch(to: str) -> Step:
    def change(bench: ResultsBench) -> None:
        results = bench.settings.results.model_copy(update={"patient_mismatch": to})
        bench.settings = bench.settings.model_copy(update={"results": results})

    return act(change)


def other(version: int = 1, **more: Any) -> LabReport:
    return make_report(haemoglobin(f"{version}"), patient=OTHER, version=version, **more)


ABSENT = NotPerformed(line="L0", reason="clotted")
KNOW_ANNA = act(lambda bench: bench.know_patient(**ANNA))
HISTORIES: dict[str, tuple[Step, ...]] = {
    # an operator who looked at the patient has not looked at the values
    "a release answers no other question": (
        get(other(**ODD), MISMATCH), release(1, moved=False), now(1, QUESTION), release(1), now(1, DELIVERED)),
    # held for something else while nothing was compared, then the setting changes
    "an answer to another question does not answer it": (
        set_mismatch("ignore"), get(other(**ODD), QUESTION), set_mismatch("hold"), release(1, moved=False), now(1, MISMATCH)),
    "a later version is compared anew": (
        get(other(1), MISMATCH), release(1), get(make_report(patient=SAME, version=2)), get(other(3), MISMATCH),
        get(make_report(haemoglobin("8.8"), patient=SAME, version=4)), now(3, ReportState.SUPERSEDED)),
    "a rejection for another patient cancels nothing": (
        get(LabRejection(order=ORDER, not_performed=(ABSENT,), patient=OTHER), MISMATCH), lines(), release(1),
        lines("cancelled")),
}  # fmt: skip


@parametrize_first("case", HISTORIES)
async def test_patient_is_asked_about_alone_and_anew(case: str) -> None:
    await play((KNOW_ANNA, *HISTORIES[case]))


@pytest.mark.slow
async def test_result_given_to_another_order_is_compared_with_that(anna: ResultsBench) -> None:
    """The release was for one order; an operator who moves the result to it has not answered for its patient."""
    lost = await anna.receive(make_report(order=OrderKey("RNOBODY"), patient=OTHER))
    assert lost.state is ReportState.UNMATCHED
    assert (await anna.match(lost)).report.hold_reason is MISMATCH


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "is_known", "patient", "warnings"),
    [("note", True, OTHER, 1), ("ignore", True, OTHER, 0), ("hold", False, OTHER, 1)],
)
async def test_result_goes_with_a_warning_by_the_setting(
    setting: str, is_known: bool, patient: ReportedPatient, warnings: int
) -> None:
    """Also where nothing can be compared, as the identity is not kept any more."""
    async with open_bench({"patient_mismatch": setting}) as bench:
        if is_known:
            await bench.know_patient(**ANNA)
        assert (await bench.receive(make_report(patient=patient))).state is DELIVERED
        assert len(bench.event_texts("warning")) == warnings


@pytest.mark.slow
async def test_patient_of_whom_nothing_is_said_is_no_patient(bench: ResultsBench) -> None:
    delivered = await bench.receive(make_report(patient=ReportedPatient()))
    assert (delivered.state, await reported(bench, delivered)) == (DELIVERED, None)
    assert bench.event_texts("warning") == []


NAMED: tuple[tuple[dict[str, str], str | None], ...] = (
    ({"family": "Meier", "birth_date": "1971-12-24", "sex": "male"}, "(name, birth date, sex)"),
    ({"family": "MUELLER", "given": "ANNA"}, None),
)


@parametrize_first("door", DOORS)
async def test_result_naming_another_patient_is_held(bench: ResultsBench, tmp_path: Path, door: str) -> None:
    """Over every adapter alike; the name itself goes nowhere but into the vault."""
    await bench.know_patient(**ANNA | {"family": "Müller-Sample", "given": ["Anna", "Maria"]})
    async with open_door(door, StoreInbox(bench.store, bench.clock, "lis"), tmp_path / "lis") as laboratory:
        for number, (named, differing) in enumerate(NAMED):
            said: dict[str, Any] = {"report_id": f"B{number}", "value": "1", "code": "718-7", "issued": NOW, "effective": NOW}
            await laboratory.send(ResultMessage(**said, accession="A-1", patient=named))
            await bench.run_until_idle()
            report = bench.store.records(ReportRecord)[-1]
            assert report.hold_reason is (MISMATCH if differing else None), named
            assert (differing or "") in (report.reason or "")
            assert json.loads(await reported(bench, report) or b"").get("family") == named.get("family")
            assert b"Anna" not in report.body
    assert "Meier" not in everything_stored(bench)
