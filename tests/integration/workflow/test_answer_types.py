"""A service that writes what decides something in other types, cases and spellings, or says of a write what is not so."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import httpx
import pytest

from lab_agent.cli.check_exchange import check_service
from lab_agent.cli.check_result import CheckStatus
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.order_holds import HoldCause
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.ports.exchange import SearchKind
from lab_agent.workflow.search_alerts import SearchAlerts, search_alert_key
from tests.integration.workflow.conftest import Scenario, alter
from tests.integration.workflow.service_answers import add_rows, answer_with, change_answers, is_search_with
from tests.integration.workflow.test_held_orders import later

MakeScenario = Callable[..., Scenario]
Change = Callable[[dict[str, Any]], None]
LISTS = ("basedOn", "partOf", "specimen", "identifier", "supportingInfo", "container")
SINGLES = ("meta", "subject", "code", "requisition", "collection")


def status_in_capitals(resource: dict[str, Any]) -> None:
    for name in {"status", "gender"} & resource.keys():
        resource[name] = resource[name].upper()


def capitals(resource: dict[str, Any]) -> None:
    status_in_capitals(resource)
    if resource["resourceType"] == "Task":
        for coding in resource.get("code", {}).get("coding", []):
            coding["code"] = coding["code"].upper()


def lists_as_objects(resource: dict[str, Any]) -> None:
    for name in LISTS:
        if len(found := resource.get(name, [])) == 1:
            resource[name] = found[0]


def objects_as_lists(resource: dict[str, Any]) -> None:
    for name in SINGLES:
        if name in resource:
            resource[name] = [resource[name]]


def references_as_texts(resource: dict[str, Any]) -> None:
    for name in ("basedOn", "partOf", "specimen"):
        if name in resource:
            resource[name] = [each["reference"] for each in resource[name]]


def spaced(resource: dict[str, Any]) -> None:
    for found in resource.values():
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, dict) and "reference" in each:
                each["reference"] = f" \t{each['reference']}\u00a0"


SPELLINGS = [capitals, lists_as_objects, objects_as_lists, references_as_texts, spaced]


@pytest.mark.parametrize("spell", SPELLINGS)
async def test_order_spelled_otherwise_is_handed_over(make_scenario: MakeScenario, spell: Change) -> None:
    scenario = make_scenario(2)
    alter(scenario, "", spell)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]
    await scenario.agent.reconcile.run()
    assert [line.state for line in await scenario.lines()] == [LineState.ACCEPTED] * 2


@pytest.mark.parametrize("spell", [capitals, references_as_texts, spaced])
async def test_withdrawal_spelled_otherwise_is_seen(make_scenario: MakeScenario, spell: Change) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    alter(scenario, "", spell)
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    assert sorted(line.state.value for line in await scenario.lines()) == ["accepted", "withdrawn"]


async def test_order_with_capitals_ends_like_any_other(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    alter(scenario, "task", status_in_capitals)
    await scenario.process_all()
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.statuses() == ["completed"] * 2


async def test_line_twice_in_search_is_its_newest_copy(make_scenario: MakeScenario) -> None:
    """The older copy stands last: the line was withdrawn, and the laboratory is told."""
    scenario = make_scenario(2)
    await scenario.process_all()
    before = deepcopy(scenario.world.get_task(scenario.line_tasks[0]))
    scenario.world.end_task(scenario.line_tasks[0])
    change_answers(scenario, is_search_with("part-of"), add_rows(lambda: [before]))
    await scenario.agent.reconcile.run()
    assert sorted(line.state.value for line in await scenario.lines()) == ["accepted", "withdrawn"]


REMARK = {"resourceType": "OperationOutcome", "issue": [{"severity": "warning", "code": "processing"}]}


@pytest.mark.parametrize(
    ("row", "is_told"),
    [({"resourceType": "Basic", "id": "1"}, True), ({"resourceType": "Anything"}, True), (REMARK, False)],
)
async def test_row_of_another_type_holds_no_order(make_scenario: MakeScenario, row: dict[str, Any], is_told: bool) -> None:
    scenario = make_scenario(1)
    change_answers(scenario, is_search_with("part-of"), add_rows(lambda: [row]))
    change_answers(scenario, is_search_with("subject"), add_rows(lambda: [row]))
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    await SearchAlerts(scenario.agent.exchange, scenario.world.store, scenario.world.clock).run()
    for kind in (SearchKind.LINE_TASKS, SearchKind.QUESTIONNAIRES):
        assert await scenario.is_alert_open(search_alert_key(kind)) is is_told


def spoil_page(**fields: Any) -> Callable[[httpx.Request, httpx.Response], httpx.Response]:
    """A change of a search: these entries come, too, and these fields stand beside them."""

    def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.json()
        return httpx.Response(200, json={**body, **fields, "entry": [*body["entry"], *fields.get("entry", ())]})

    return change


@pytest.mark.parametrize(
    "fields",
    [
        {"entry": ["task"]},
        {"entry": [{"resource": "task"}]},
        {"entry": [{"resource": {"id": "7", "status": "requested"}}]},
        {"entry": [{"resource": {"resourceType": "Task", "id": {"value": "7"}}}]},
        {"link": "?page=2"},
        {"link": [{"url": "?page=2"}]},
    ],
)
async def test_lines_that_nobody_can_tell_hold_the_order(make_scenario: MakeScenario, fields: dict[str, Any]) -> None:
    """An order without one of its lines is another order: it waits with its reason, is held, and goes on by itself."""
    scenario = make_scenario(1)
    restore = change_answers(scenario, is_search_with("part-of"), spoil_page(**fields))
    await scenario.process_all()
    await later(scenario, scenario.world.settings.worker.unreadable_after + 60)
    record = await scenario.order_record()
    assert (record.state, record.hold_cause) == (OrderState.HELD, HoldCause.UNREADABLE)
    assert scenario.world.lis.submitted == []
    restore()
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


# --- writes

HINTS = '{"resourceType": "OperationOutcome", "issue": {"severity": "%s", "code": "invalid", "diagnostics": "hm"}}'


def is_write(request: httpx.Request) -> bool:
    return request.method in {"PUT", "POST"} and "/fhir/" in request.url.path


@pytest.mark.parametrize("severity", ["warning", "information", "WARNING"])
async def test_write_rejected_without_error_that_was_done_counts(make_scenario: MakeScenario, severity: str) -> None:
    scenario = make_scenario(2, acknowledge_status="accepted")
    change_answers(scenario, is_write, answer_with(422, HINTS % severity))
    await scenario.process_all()
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.statuses() == ["completed"] * 2
    versions = [scenario.world.get_task(task)["meta"]["versionId"] for task in scenario.line_tasks]
    assert versions == ["2"] * 2 or versions == ["3"] * 2


def refuse(scenario: Scenario, answers: list[httpx.Response]) -> None:
    """Answer Task updates with these, without doing anything, until none is left."""
    transport = scenario.agent._http._transport  # type: ignore[attr-defined]
    handle = transport.handle_async_request

    async def changed(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT" and answers:
            return answers.pop(0)
        response: httpx.Response = await handle(request)
        return response

    transport.handle_async_request = changed


@pytest.mark.parametrize("severity", ["warning", "information"])
async def test_write_not_done_and_rejected_without_error_told(make_scenario: MakeScenario, severity: str) -> None:
    scenario = make_scenario(2, spoil=0)
    refuse(scenario, [httpx.Response(422, text=HINTS % severity)])
    await scenario.process_all()
    dead = [job for job in await scenario.jobs() if job.state is JobState.DEAD_LETTER]
    assert [(job.kind, job.failure_cause) for job in dead] == [(JobKind.UPDATE_LINE_TASK, FailureCause.WRITE_REJECTED)]


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "600"}])
async def test_locked_task_is_written_later(make_scenario: MakeScenario, headers: dict[str, str]) -> None:
    """A lock on one Task holds back no other request."""
    scenario = make_scenario(2, spoil=0)
    refuse(scenario, [httpx.Response(423, headers=headers)] * 2)
    await scenario.process_all()
    assert sorted(scenario.statuses()) == ["cancelled", "requested"]
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize(
    ("status", "page"), [(502, "<html>bad gateway</html>"), (403, "<!doctype html>"), (200, "<html>sign in</html>")]
)
async def test_page_in_place_of_an_answer_is_told(make_scenario: MakeScenario, status: int, page: str) -> None:
    scenario = make_scenario(2, spoil=0)
    refuse(scenario, [httpx.Response(status, text=page)] * 99)
    await scenario.process_all()
    waiting = [job for job in await scenario.jobs() if job.kind is JobKind.UPDATE_LINE_TASK]
    assert ["an HTML page" in str(job.reason) for job in waiting] == [True]


@pytest.mark.parametrize(
    ("status", "page"), [(502, "<html>bad gateway</html>"), (503, "<!doctype html>"), (200, "<html>sign in</html>")]
)
async def test_check_names_a_page(make_scenario: MakeScenario, status: int, page: str) -> None:
    scenario = make_scenario(1)
    change_answers(scenario, lambda request: request.method == "GET", answer_with(status, page))
    result = (await check_service(scenario.agent.components))[0]
    assert (result.status, "an HTML page" in result.detail) == (CheckStatus.WRONG, True)
