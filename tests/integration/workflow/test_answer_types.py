"""A service that writes what decides something in other types, cases and spellings, or says of a write what is not so.

Each spelling is tried in `tests/unit/fhir/test_elements.py`, each answer in `tests/unit/exchange/test_responses.py`.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from lab_agent.cli.check_exchange import check_service
from lab_agent.cli.check_result import CheckStatus
from lab_agent.orders.records import HoldCause
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import LineState, OrderState
from tests.integration.workflow import service_answers
from tests.integration.workflow.conftest import Change, MakeScenario, Scenario, alter, parametrize_first
from tests.integration.workflow.service_answers import answer_with, change_answers, is_search_with


def texts_and_capitals(resource: dict[str, Any]) -> None:
    for name in {"basedOn", "partOf", "specimen"} & resource.keys():
        resource[name] = [f" \t{each['reference']}\u00a0" for each in resource[name]]
    for name in {"status", "gender"} & resource.keys():
        resource[name] = resource[name].upper()
    for coding in resource.get("code", {}).get("coding", []) if resource["resourceType"] == "Task" else ():
        coding["code"] = coding["code"].upper()


def other_numbers(resource: dict[str, Any]) -> None:
    """One in place of a list, and a list of one."""
    for name, found in resource.items():
        if isinstance(found, dict) or (isinstance(found, list) and len(found) == 1):
            resource[name] = [found] if isinstance(found, dict) else found[0]


@parametrize_first("spell", [texts_and_capitals, other_numbers])
async def test_order_spelled_otherwise_is_done(make_scenario: MakeScenario, spell: Change) -> None:
    """From the handover to the withdrawal of a line."""
    scenario = make_scenario(2)
    alter(scenario, "", spell)
    await scenario.process_all()
    assert (await scenario.state(), scenario.handed_over) == (OrderState.HANDED_OVER, [2])
    await scenario.reconcile(drain=False)
    assert await scenario.line_states() == [LineState.ACCEPTED] * 2
    scenario.end(scenario.line_tasks[0])
    await scenario.reconcile()
    assert sorted(await scenario.line_states()) == [LineState.ACCEPTED, LineState.WITHDRAWN]


async def test_order_with_capitals_ends_like_any_other(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    alter(scenario, "task", lambda task: task.update(status=task["status"].upper()))
    await scenario.process_all()
    await scenario.finish()
    assert (await scenario.state(), scenario.statuses()) == (OrderState.CLOSED, ["completed"] * 2)


def spoil_page(**fields: Any) -> service_answers.Change:
    """A change of a search: these entries come, too, and these fields stand beside them."""

    def change(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.json()
        return httpx.Response(200, json={**body, **fields, "entry": [*body["entry"], *fields.get("entry", ())]})

    return change


SPOILED = [
    {"entry": [{"resource": {"resourceType": "Task", "id": {"value": "7"}}}]},
    {"link": [{"url": "?page=2"}]},
    {"entry": ["task"]},
    {"entry": [{"resource": "task"}]},
    {"entry": [{"resource": {"id": "7", "status": "requested"}}]},
    {"link": "?page=2"},
]


@parametrize_first("fields", SPOILED)
async def test_lines_that_nobody_can_tell_hold_the_order(make_scenario: MakeScenario, fields: dict[str, Any]) -> None:
    """An order without one of its lines is another order: it waits with its reason, is held, and goes on by itself."""
    scenario = make_scenario(1)
    restore = change_answers(scenario, is_search_with("part-of"), spoil_page(**fields))
    await scenario.process_all()
    await scenario.drain(scenario.world.settings.worker.unreadable_after + 60)
    record = await scenario.order_record()
    assert (record.state, record.hold_cause, scenario.handed_over) == (OrderState.HELD, HoldCause.UNREADABLE, [])
    restore()
    await scenario.drain(301)
    assert await scenario.state() is OrderState.HANDED_OVER


# --- writes

HINTS = '{"resourceType": "OperationOutcome", "issue": {"severity": "%s", "code": "invalid", "diagnostics": "hm"}}'


async def test_write_rejected_without_error_that_was_done_counts(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, acknowledge_status="accepted")
    is_write = {"PUT", "POST"}
    change_answers(
        scenario, lambda request: request.method in is_write and "/fhir/" in request.url.path, answer_with(422, HINTS % "WARNING")
    )
    await scenario.process_all()
    await scenario.finish()
    assert (await scenario.state(), scenario.statuses()) == (OrderState.CLOSED, ["completed"] * 2)
    versions = [scenario.world.get_task(task)["meta"]["versionId"] for task in scenario.line_tasks]
    assert versions in (["2"] * 2, ["3"] * 2)


def refuse(scenario: Scenario, *answers: httpx.Response) -> None:
    """Answer Task updates with these, without doing anything, until none is left."""
    transport: Any = scenario.agent._http._transport  # type: ignore[attr-defined]
    handle, left = transport.handle_async_request, list(answers)

    async def changed(request: httpx.Request) -> httpx.Response:
        refused: httpx.Response = left.pop(0) if request.method == "PUT" and left else await handle(request)
        return refused

    transport.handle_async_request = changed


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "600"}])
async def test_locked_task_is_written_later(make_scenario: MakeScenario, headers: dict[str, str]) -> None:
    """A lock on one Task holds back no other request."""
    scenario = make_scenario(2, spoil=0)
    refuse(scenario, *[httpx.Response(423, headers=headers)] * 2)
    await scenario.process_all()
    assert (sorted(scenario.statuses()), await scenario.state()) == (["cancelled", "requested"], OrderState.HANDED_OVER)


@parametrize_first("status, page", [(200, "<html>sign in</html>"), (403, "<!doctype html>"), (502, "<html>bad gateway</html>")])
async def test_page_in_place_of_an_answer_is_told(make_scenario: MakeScenario, status: int, page: str) -> None:
    """With the job that waits, and by the check of the settings."""
    scenario = make_scenario(2, spoil=0)
    refuse(scenario, *[httpx.Response(status, text=page)] * 99)
    await scenario.process_all()
    waiting = [job for job in await scenario.jobs() if job.kind is JobKind.UPDATE_LINE_TASK]
    assert ["an HTML page" in str(job.reason) for job in waiting] == [True]
    change_answers(scenario, lambda request: request.method == "GET", answer_with(503 if status == 403 else status, page))
    result = (await check_service(scenario.agent.components))[0]
    assert (result.status, "an HTML page" in result.detail) == (CheckStatus.WRONG, True)
