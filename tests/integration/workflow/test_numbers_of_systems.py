"""What each laboratory system calls an order, its lines and its tubes, and what is found by that; lines entered by hand."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.lis import serialization
from lab_agent.lis.lab_messages import Accession, AccessionUpdate, LabRejection, NotPerformed
from lab_agent.lis.laboratory_system import SubmitResult
from lab_agent.orders.records import LineRecord
from lab_agent.shared.errors import DataInvalidError, InvalidTransitionError, StoreError
from lab_agent.shared.ids import LineKey
from lab_agent.shared.state_machines import LineState, ReportState
from tests.harness.orders import find_order
from tests.harness.world import World
from tests.integration.workflow.conftest import MakeScenario, Scenario
from tests.integration.workflow.laboratories import CHEMISTRY, MICROBIOLOGY, Laboratory, make_laboratory


@pytest.fixture
def laboratory() -> Laboratory:
    return make_laboratory()


# --- numbers


async def numbers(scenario: Scenario, adapter: str = CHEMISTRY) -> tuple[str | None, dict[LineKey, str | None]]:
    parts = await scenario.world.store.transact(lambda uow: uow.orders.work_orders(scenario.key))
    number = next(each.accession for each in parts if each.adapter == adapter)
    return number, {line.key: line.accession for line in await scenario.lines() if line.adapter == adapter}


async def test_submit_result_numbers_stored() -> None:
    """A number of the line counts before that of its tube; one of a tube that the order does not have is left out."""
    world = World("numbers")
    template = find_order(world.clock.now().replace(minute=0, second=0), lines=3, specimens=2)
    scenario = Scenario(world, world.agent(), world.place_order(template))
    tubes: dict[str, str] = {}

    def give_numbers(order: Any) -> SubmitResult:
        tubes.update({each.id: each.containers[0].barcode for each in order.specimens})
        given = {barcode: f"T-{barcode}" for barcode in tubes.values()} | {"unknown": "T0"}
        return SubmitResult(accession="A7", line_accessions={order.lines[0].key: "A7-1"}, tube_accessions=given)

    world.lis.give_numbers = give_numbers
    await scenario.process_all()
    (order,) = world.lis.submitted
    expected: dict[LineKey, str | None] = {line.key: f"T-{tubes[line.specimens[0]]}" for line in order.lines}
    assert await numbers(scenario) == ("A7", {**expected, order.lines[0].key: "A7-1"})
    assert await world.store.transact(lambda uow: uow.orders.by_accession("A7-1", CHEMISTRY)) == (scenario.key,)


async def test_later_update_overwrites_earlier_numbers(make_scenario: MakeScenario) -> None:
    """One that names a tube that the order does not have is held as a whole, and nothing of it is written."""
    scenario = make_scenario(2)
    await scenario.process_all()
    first, second = scenario.world.lis.submitted[0].lines
    for number, entries, state in (
        ("A7", [Accession(number="1", line=first.key), Accession(number="2", item=second.item)], ReportState.DELIVERED),
        (None, [Accession(number="3", line=first.key)], ReportState.DELIVERED),
        ("A8", [Accession(number="4", line=first.key), Accession(number="5", barcode="nobody's")], ReportState.UNMATCHED),
    ):
        record = await scenario.receive(AccessionUpdate(order=scenario.key, accession=number, accessions=tuple(entries)))
        assert (record.state, "nobody's" in (record.reason or "")) == (state, state is ReportState.UNMATCHED)
    assert await numbers(scenario) == ("A7", {first.key: "3", second.key: "2"})


async def test_message_before_its_number_matched_later(make_scenario: MakeScenario) -> None:
    """The number comes in a message of its own; one with the answer to the handover is tried in `test_whose_value.py`."""
    scenario = make_scenario(2)
    await scenario.assess()
    refusal = LabRejection(accession="A7", not_performed=(NotPerformed(reason="haemolysed"),))
    early = await scenario.receive(refusal)
    assert early.state is ReportState.UNMATCHED
    await scenario.receive(AccessionUpdate(order=scenario.key, accession="A7"))
    early = await scenario.world.store.transact(lambda uow: uow.reports.get_for_update(early.key))
    assert (early.state, early.order) == (ReportState.DELIVERED, scenario.key)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"order": "R1"}, "gives no number"),
        ({"accession": "A7"}, "names no order"),
        ({"order": "R1", "accessions": [{"number": "1"}]}, "names nothing"),
        ({"order": "R1", "accessions": [{"number": "1", "line": "L", "item": "I"}]}, "2 at once"),
        ({"order": "R1", "accessions": [{"number": " ", "line": "L"}]}, "is empty"),
    ],
)
def test_update_without_content_rejected(body: dict[str, Any], word: str) -> None:
    with pytest.raises(DataInvalidError, match=word):
        serialization.load_message(json.dumps({"kind": "accession_update", **body}).encode())


# --- several systems


async def test_same_report_id_and_number_of_two_systems_stay_apart(laboratory: Laboratory) -> None:
    for lis in (laboratory.chemistry, laboratory.microbiology):
        lis.answer = SubmitResult(accession="2403-17")
    await laboratory.process_all()
    fields: dict[str, Any] = {"order": None, "accession": "2403-17", "report_id": "17"}
    blood = await laboratory.receive(laboratory.report(**fields))
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    culture = await laboratory.receive(laboratory.report(**fields), MICROBIOLOGY)
    assert {each.state for each in (blood, culture)} == {ReportState.DELIVERED}
    assert culture.lines == tuple(line.key for line in await laboratory.lines_at(MICROBIOLOGY))
    assert (len(laboratory.reports_on_service()), laboratory.status()) == (2, "completed")
    for text in ("final report 17 of {} matched", "final report 17 of {} is on the service"):
        assert {text.format(CHEMISTRY), text.format(MICROBIOLOGY)} <= set(laboratory.told())


async def test_number_of_another_system_finds_nothing(laboratory: Laboratory) -> None:
    """And one that comes later numbers its part alone."""
    laboratory.chemistry.answer = SubmitResult(accession="C-1")
    await laboratory.process_all()
    lost = await laboratory.receive(laboratory.report(order=None, accession="C-1"), MICROBIOLOGY)
    assert (lost.state, lost.order) == (ReportState.UNMATCHED, None)
    await laboratory.receive(AccessionUpdate(order=laboratory.key, accession="M-9"), MICROBIOLOGY)
    assert [(await numbers(laboratory, each))[0] for each in (CHEMISTRY, MICROBIOLOGY)] == ["C-1", "M-9"]


async def test_report_about_another_systems_line_waits(laboratory: Laboratory) -> None:
    """By its key, by its item, or as not performed, until an operator matches it to that line."""
    await laboratory.process_all()
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    absent = (NotPerformed(item=line.item, reason="broken"),)
    named = [
        laboratory.report(order=None, lines=(line.key,)),
        laboratory.report(items=(line.item,)),
        LabRejection(order=laboratory.key, not_performed=absent),
        laboratory.report(lines=(line.key,)),
    ]
    for message in named:
        held = await laboratory.receive(message)
        assert held.state is ReportState.UNMATCHED
        assert "is at the laboratory system micro, not at folder" in (held.reason or "")
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    after = await laboratory.match_to(held, line)
    assert (after.state, after.source, after.adapter) == (ReportState.DELIVERED, CHEMISTRY, MICROBIOLOGY)
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.COMPLETED}
    assert await laboratory.states_at(CHEMISTRY) == {LineState.ACCEPTED}


@pytest.mark.slow
async def test_report_matched_to_another_system_keeps_its_own_identifier() -> None:
    """Two laboratory systems give the same report id; an operator matched the first of the reports to the other's line."""
    laboratory = make_laboratory(lines_elsewhere=2)
    await laboratory.process_all()
    first, second = await laboratory.lines_at(MICROBIOLOGY)
    held = await laboratory.receive(laboratory.report(lines=(first.key,), report_id="24-7"))
    before = await laboratory.match_to(held, first)
    laboratory.world.clock.advance(60)
    own = await laboratory.receive(laboratory.report(lines=(second.key,), report_id="24-7"), MICROBIOLOGY)
    assert (before.state, own.state, len(laboratory.reports_on_service())) == (ReportState.DELIVERED, ReportState.DELIVERED, 2)
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.COMPLETED}


# --- lines that a person enters by hand


async def withdraw(laboratory: Laboratory, line: LineRecord) -> None:
    laboratory.end(line.task_id)
    await laboratory.reconcile()


async def put_back(laboratory: Laboratory, line: LineRecord) -> None:
    """The partner withdraws a line, and requests it again some minutes later."""
    await withdraw(laboratory, line)
    laboratory.world.clock.advance(300)
    laboratory.force("requested", line.task_id)
    await laboratory.reconcile()
    assert {each.key: each.state for each in await laboratory.lines()}[line.key] is LineState.HELD


async def test_line_entered_by_hand_names_its_system(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    laboratory.world.add_late_line(laboratory.task)
    await laboratory.reconcile(drain=False)
    (late,) = [line for line in await laboratory.lines() if line.state is LineState.HELD]
    laboratory.world.clock.time += timedelta(seconds=1)
    with pytest.raises(StoreError, match="--adapter"):
        await laboratory.accept_line(late.key)
    await laboratory.accept_line(late.key, MICROBIOLOGY)
    assert late.key in {line.key for line in await laboratory.lines_at(MICROBIOLOGY)}


@pytest.mark.slow
async def test_withdrawal_is_told_where_the_line_was_entered_by_hand(laboratory: Laboratory) -> None:
    laboratory.microbiology.rejects = True
    await laboratory.process_all()
    await laboratory.dismiss_dead_letter()
    (line, *_) = await laboratory.lines_at(CHEMISTRY)
    await put_back(laboratory, line)
    await laboratory.accept_line(line.key, MICROBIOLOGY)
    laboratory.microbiology.cancelled.clear()
    laboratory.world.clock.advance(300)
    await withdraw(laboratory, line)
    assert laboratory.microbiology.cancelled == [(line.order, (line.key,))]
    assert laboratory.told("cancel_at_lis")[-1] == "the laboratory system micro was informed of the withdrawal"


@pytest.mark.slow
async def test_line_of_a_part_on_its_way_is_not_entered_by_hand() -> None:
    """Else the handover would bring to the laboratory system what somebody has entered there already."""
    laboratory = make_laboratory(lines_elsewhere=2)
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    line, other = await laboratory.lines_at(MICROBIOLOGY)
    await put_back(laboratory, line)
    with pytest.raises(InvalidTransitionError, match="not handed over yet"):
        await laboratory.accept_line(line.key, MICROBIOLOGY)
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    (submitted,) = laboratory.microbiology.submitted
    assert [each.key for each in submitted.lines] == [other.key]
    await laboratory.accept_line(line.key, MICROBIOLOGY)
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    assert len(laboratory.microbiology.submitted) == 1
