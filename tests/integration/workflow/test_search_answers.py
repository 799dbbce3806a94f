"""What a search answers is held against what was asked: a service that ignores parameters costs no order anything."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import httpx
import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.ports.exchange import SearchKind
from lab_agent.workflow import operator_orders
from lab_agent.workflow.search_alerts import SearchAlerts, search_alert_key
from lab_sandbox.config import LABORATORY_GUID
from tests.harness.orders import catalogue, procedure_requests, templates
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, pick_template
from tests.integration.workflow.service_answers import add_rows, answer_with, change_answers, is_read_of, is_search_with
from tests.integration.workflow.test_held_orders import later

MakeScenario = Callable[..., Scenario]


def ignore_part_of(scenario: Scenario, others: list[str]) -> Callable[[], None]:
    """The service does not know `part-of`, and answers with the line Tasks of other orders, too, and with what has no partOf."""

    def rows() -> list[dict[str, Any]]:
        world = scenario.world
        return [task for other in others for task in (*world.line_tasks(other), world.get_task(other))]

    return change_answers(scenario, is_search_with("part-of"), add_rows(rows))


async def refresh_search_alerts(scenario: Scenario) -> None:
    await SearchAlerts(scenario.agent.exchange, scenario.world.store, scenario.world.clock).run()


async def test_ignored_part_of_holds_orders_and_cancels_nothing(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    other = scenario.world.place_order(pick_template(scenario.world, 3), relabel=True)
    restore = ignore_part_of(scenario, [scenario.task, other])
    await scenario.process_all()
    await refresh_search_alerts(scenario)
    states = [(await scenario.world.stored_order(task))[0].state for task in (scenario.task, other)]
    assert states == [OrderState.HELD] * 2
    assert {scenario.world.get_task(task)["status"] for task in (*scenario.line_tasks, scenario.task, other)} == {"requested"}
    assert scenario.world.lis.submitted == []
    restore()
    await later(scenario, 301)
    assert sorted(len(order.lines) for order in scenario.world.lis.submitted) == [2, 3]
    await refresh_search_alerts(scenario)
    assert not await scenario.is_alert_open(search_alert_key(SearchKind.LINE_TASKS))


async def test_ignored_part_of_opens_alert(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    ignore_part_of(scenario, [scenario.task])
    await scenario.process_all()
    await refresh_search_alerts(scenario)
    assert await scenario.is_alert_open(search_alert_key(SearchKind.LINE_TASKS))


async def test_open_order_never_takes_lines_of_others(make_scenario: MakeScenario) -> None:
    """A glitch while an order is open: the Tasks of others are no late lines of it, and its results still end it."""
    scenario = make_scenario(2)
    await scenario.process_all()
    other = scenario.world.place_order(pick_template(scenario.world, 3), relabel=True)
    ignore_part_of(scenario, [other])
    await scenario.agent.reconcile.run()
    assert [line.state for line in await scenario.lines()] == [LineState.ACCEPTED] * 2
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.statuses() == ["completed"] * 2


async def test_known_task_is_never_another_orders_line(make_scenario: MakeScenario) -> None:
    """Even where a Task names two orders as its partOf: whose line it is was decided once."""
    scenario = make_scenario(1)
    await scenario.process_all()
    first, line = scenario.task, scenario.line_tasks[0]
    scenario.task = scenario.world.place_order(pick_template(scenario.world, 2), relabel=True)
    await scenario.process_all()
    references = [{"reference": f"task/{task}"} for task in (first, scenario.task)]
    stray = {**scenario.world.get_task(line), "partOf": references}
    change_answers(scenario, is_search_with("part-of"), add_rows(lambda: [stray]))
    await scenario.agent.reconcile.run()
    assert [each.state for each in await scenario.lines()] == [LineState.ACCEPTED] * 2


async def test_answers_about_other_orders_hold_the_order(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    stray = {"resourceType": "QuestionnaireResponse", "id": "q9", "subject": {"reference": "procedurerequest/another"}}
    restore = change_answers(scenario, is_search_with("subject"), add_rows(lambda: [stray]))
    await scenario.process_all()
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert "`exchange.questionnaire_search`" in str(record.reason)
    restore()
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_order_with_unfiltered_answers_can_be_refused(make_scenario: MakeScenario) -> None:
    """What was assessed is kept, and both the reason and the alert name the setting."""
    scenario = make_scenario(2)
    stray = {"resourceType": "QuestionnaireResponse", "id": "q9", "subject": {"reference": "procedurerequest/another"}}
    change_answers(scenario, is_search_with("subject"), add_rows(lambda: [stray]))
    await scenario.process_all()
    await refresh_search_alerts(scenario)
    texts = [alert.detail for alert in scenario.world.store._data.alerts]  # type: ignore[attr-defined]
    texts.append(str((await scenario.order_record()).reason))
    assert sum("`exchange.questionnaire_search`" in text for text in texts) == 2
    service, key = scenario.world.settings.exchange.base_url, (await scenario.order_record()).key
    await operator_orders.reject_order(scenario.world.store, service, key, "no", by="eve", now=scenario.world.clock.now())
    await scenario.world.drain(scenario.agent)
    assert scenario.statuses() == ["cancelled"] * 2


UNREADABLE = [answer_with(500), answer_with(502, "<html>"), answer_with(200, "<html>sign in</html>"), answer_with(200, '{"id": ')]


@pytest.mark.parametrize("change", UNREADABLE)
@pytest.mark.parametrize("what", ["specimen/", "patient/", "procedurerequest/"])
async def test_broken_resource_counts_like_a_missing_one(make_scenario: MakeScenario, change: Any, what: str) -> None:
    """An error about one resource, beside good ones, is no outage: the order waits with its reason, then it is held."""
    scenario = make_scenario(1)
    restore = change_answers(scenario, is_read_of(what), change)
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, what in str(record.reason)) == (OrderState.SEEN, True)
    await later(scenario, scenario.world.settings.worker.unreadable_after + 60)
    record = await scenario.order_record()
    assert (record.state, what in str(record.reason)) == (OrderState.HELD, True)
    assert not await scenario.is_alert_open(AlertKey(ConditionId.EXCHANGE_PART_UNAVAILABLE, "fetch_order"))
    restore()
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize(
    ("parameter", "status"),
    # 422 to the search for answers says that the service does not offer it: the answers are unknown then.
    [("part-of", 403), ("part-of", 418), ("part-of", 422), ("subject", 401), ("subject", 403), ("subject", 418)],
)
async def test_rejected_search_holds_until_it_is_allowed(make_scenario: MakeScenario, parameter: str, status: int) -> None:
    scenario = make_scenario(1)
    restore = change_answers(scenario, is_search_with(parameter), answer_with(status))
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, str(status) in str(record.reason)) == (OrderState.HELD, True)
    assert [job.kind for job in await scenario.jobs()] == [JobKind.FETCH_ORDER]
    restore()
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


def answers_in(bundle: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["resource"] for each in bundle["entry"] if each["resource"]["resourceType"] == "QuestionnaireResponse"]


def needs_answers(bundle: dict[str, Any]) -> bool:
    items = {each["code"]["coding"][0]["code"] for each in procedure_requests(bundle)}
    known = catalogue().contract("C-100").items
    asked = [ref for code in items if code in known for ref in known[code].question_refs]
    return any(each.required for each in asked)


@pytest.fixture
def place_with_answers() -> Callable[..., Scenario]:
    """Place an order whose tests need answers, changed on its way."""

    def place(change: Callable[[dict[str, Any]], None]) -> Scenario:
        world = World("answers")
        found = templates(world.clock.now().replace(minute=0, second=0), 60)
        template = deepcopy(next(each for each in found if needs_answers(each.bundle)))
        change(template.bundle)
        return Scenario(world, world.agent(), world.place_order(template))

    return place


def without_right(bundle: dict[str, Any]) -> None:
    for each in answers_in(bundle):
        each["meta"]["security"] = [right for right in each["meta"]["security"] if right["code"] != LABORATORY_GUID]


def without_answers(bundle: dict[str, Any]) -> None:
    bundle["entry"] = [each for each in bundle["entry"] if each["resource"] not in answers_in(bundle)]


def without_items(bundle: dict[str, Any]) -> None:
    for each in answers_in(bundle):
        each["item"] = []


@pytest.mark.parametrize("change", [without_right, without_answers])
async def test_answers_that_are_not_seen_hold_the_order(place_with_answers: Any, change: Any) -> None:
    """A service leaves out of a search what we may not read: nobody can tell that from answers that were never sent."""
    scenario = place_with_answers(change)
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, record.hold_cause) == (OrderState.HELD, "questionnaire.visible")
    assert {scenario.status(), *scenario.statuses()} == {"requested"}


async def test_answers_are_read_once_the_right_is_granted(place_with_answers: Any) -> None:
    scenario = place_with_answers(without_right)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HELD
    service = scenario.world.service
    for stored in service.store.find("QuestionnaireResponse", [], lambda _: True, limit=9):
        service.resources.add_rights(stored, [("read", LABORATORY_GUID)])
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_answers_that_are_seen_and_incomplete_reject(place_with_answers: Any) -> None:
    scenario = place_with_answers(without_items)
    await scenario.process_all()
    await scenario.world.drain(scenario.agent)
    assert "cancelled" in scenario.statuses()
    assert await scenario.reported_rules() == {"questionnaire.required"}


SUPPRESSED = {"resourceType": "OperationOutcome", "issue": [{"severity": "information", "code": "suppressed"}]}


@pytest.mark.parametrize(
    "more",
    [
        {"total": 9},
        {"entry": [{"fullUrl": "QuestionnaireResponse/q9", "search": {"mode": "match"}}]},
        {"entry": [{"resource": SUPPRESSED, "search": {"mode": "outcome"}}]},
    ],
)
async def test_answers_that_are_partly_withheld_hold_the_order(place_with_answers: Any, more: dict[str, Any]) -> None:
    scenario = place_with_answers(without_items)

    def withhold(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        bundle = response.json()
        entries = [*bundle.get("entry", []), *more.get("entry", [])]
        return httpx.Response(200, json={**bundle, **more, "entry": entries})

    change_answers(scenario, is_search_with("subject"), withhold)
    await scenario.process_all()
    assert (await scenario.order_record()).hold_cause == "questionnaire.visible"


@pytest.mark.parametrize("link", ["", "http://[bad", "?page=404", "https://elsewhere.example/fhir/task?page=2", None])
async def test_order_before_an_unusable_next_link_is_worked_on(make_scenario: MakeScenario, link: str | None) -> None:
    scenario = make_scenario(1)

    def cut(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if "page" in request.url.params:
            return httpx.Response(404)
        return httpx.Response(200, json={**response.json(), "link": [{"relation": "next", "url": link}]})

    change_answers(scenario, lambda request: request.url.params.get("status") == "requested" or "page" in request.url.params, cut)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert scenario.agent.exchange.order_tasks_cut_off() is not None


@pytest.mark.parametrize("what", ["specimen/", "task/"])
@pytest.mark.parametrize("status", [400, 418, 422])
async def test_rejected_read_holds_until_it_is_allowed(make_scenario: MakeScenario, what: str, status: int) -> None:
    scenario = make_scenario(1)
    restore = change_answers(scenario, is_read_of(what), answer_with(status, f"Ivanova is not shown: {what}"))
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, str(status) in str(record.reason)) == (OrderState.HELD, True)
    assert "Ivanova" not in str(record.reason)
    messages = await scenario.agent.store.run_read_only(lambda uow: uow.vault.service_messages(record.key))
    assert f"Ivanova is not shown: {what}" in [said for (job,) in [messages.values()] for said in job][-1].text
    restore()
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
