"""Times that nobody can calculate with, in each field of an order: a finding that the clinic hears of, no internal error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, OrderState
from tests.harness.orders import find_template
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, alter

MakeScenario = Callable[..., Scenario]
NO_TIMES = [
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "0001-01-02T03:00:00-12:00", "0002-06-01T00:00:00Z"),
    *("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.9999999+03:00", "9998-12-31T12:00:00Z"),
    *("0000-00-00T00:00:00Z", "10000-01-01T00:00:00Z"),
]


def set_collected(at: str) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["collection"].update(collectedDateTime=at)


def set_period(at: str) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        del body["collection"]["collectedDateTime"]
        body["collection"]["collectedPeriod"] = {"start": at, "end": at}

    return change


@pytest.mark.parametrize("at", NO_TIMES)
async def test_order_made_at_no_time_is_handed_over_with_warning(make_scenario: MakeScenario, at: str) -> None:
    scenario = make_scenario(2)
    alter(scenario, "ProcedureRequest", lambda body: body.update(occurrenceDateTime=at))
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert await scenario.reported_rules("warn") == {"line.time"}


@pytest.mark.parametrize("at", NO_TIMES)
async def test_biomaterial_collected_at_no_time_is_rejected(make_scenario: MakeScenario, at: str) -> None:
    scenario = make_scenario(2)
    alter(scenario, "Specimen", set_collected(at))
    await scenario.process_all()
    assert (set(scenario.statuses()), await scenario.reported_rules()) == ({"cancelled"}, {"specimen.collected"})
    assert all(at in text for task in scenario.line_tasks for text in scenario.outputs(task))


@pytest.mark.parametrize("at", NO_TIMES)
async def test_period_of_no_time_is_left_out(make_scenario: MakeScenario, at: str) -> None:
    scenario = make_scenario(2)
    alter(scenario, "Specimen", set_period(at))
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert await scenario.reported_rules("warn") == {"specimen.collected-period"}


@pytest.mark.parametrize("at", NO_TIMES)
async def test_tolerance_test_at_no_time_is_rejected(at: str) -> None:
    """Its rules move the times of samples by the minutes of the catalogue."""
    world = World("tolerance")
    found = find_template(
        world.clock.now().replace(minute=0), lambda plan: {item.id for item in plan.basket.items} == {"006.001"}
    )
    scenario = Scenario(world, world.agent(), world.place_order(found))
    alter(scenario, "Specimen", set_collected(at))
    await scenario.process_all()
    assert scenario.statuses() == ["cancelled"]
    assert "specimen.collected" in await scenario.reported_rules()


@pytest.mark.parametrize("born", ["0001-01-01", "0001", "0001-01", "9999-12-31", "9999", "9999-12", "0000"])
async def test_birth_date_at_the_calendars_end_is_rejected(make_scenario: MakeScenario, born: str) -> None:
    scenario = make_scenario(1)
    alter(scenario, "Patient", lambda body: body.update(birthDate=born))
    await scenario.process_all()
    assert scenario.statuses() == ["cancelled"]
    assert await scenario.reported_rules() <= {"patient.birth-date", "patient.birth-possible"}


@pytest.mark.parametrize(
    "date", ["Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 2999 23:59:59 GMT"]
)
async def test_service_with_clock_beyond_reason_harms_no_order(make_scenario: MakeScenario, date: str) -> None:
    scenario = make_scenario(2)
    transport = scenario.agent._http._transport  # type: ignore[attr-defined]
    handle = transport.handle_async_request

    async def dated(request: Any) -> Any:
        answer = await handle(request)
        answer.headers["date"] = date
        return answer

    transport.handle_async_request = dated
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert {job.state for job in await scenario.jobs(open_only=False) if job.kind is JobKind.FETCH_ORDER} == {JobState.DONE}
