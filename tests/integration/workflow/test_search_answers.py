"""What a search answers is held against what was asked: one that is wrong, or behind, costs no order anything."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import httpx

from lab_agent.exchange.service import SearchKind
from lab_agent.operations.search_alerts import SearchAlerts, search_alert_key
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.retry import LONGEST_WAIT
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import ResourceId, line_key
from lab_agent.shared.state_machines import LineState, OrderState
from lab_sandbox.config import LABORATORY_GUID
from tests.harness.orders import catalogue, procedure_requests, templates
from tests.harness.world import World
from tests.integration.workflow import service_answers
from tests.integration.workflow.conftest import Change, MakeScenario, Scenario, parametrize_first, pick_template
from tests.integration.workflow.service_answers import (
    add_rows,
    answer_as_before,
    answer_with,
    change_answers,
    is_read_of,
    is_search_with,
)

OF_ANOTHER = {"resourceType": "QuestionnaireResponse", "id": "q9", "subject": {"reference": "procedurerequest/another"}}


async def refresh_search_alerts(scenario: Scenario) -> set[AlertKey]:
    await SearchAlerts(scenario.agent.exchange, scenario.world.store, scenario.world.clock).run()
    return set(scenario.open_alerts())


def add_tasks_of(scenario: Scenario, *orders: str) -> Any:
    """The service does not know `part-of`, and answers with the Tasks of other orders, too, and with what has no partOf."""
    world = scenario.world
    rows = add_rows(lambda: [task for each in orders for task in (*world.line_tasks(each), world.get_task(each))])
    return change_answers(scenario, is_search_with("part-of"), rows)


async def test_ignored_part_of_holds_orders_and_cancels_nothing(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    other = scenario.world.place_order(pick_template(scenario.world, 3), relabel=True)
    restore = add_tasks_of(scenario, scenario.task, other)
    await scenario.process_all()
    assert search_alert_key(SearchKind.LINE_TASKS) in await refresh_search_alerts(scenario)
    states = [(await scenario.world.stored_order(task))[0].state for task in (scenario.task, other)]
    assert (states, scenario.handed_over) == ([OrderState.HELD] * 2, [])
    assert {each["status"] for each in scenario.world.all_tasks()} == {"requested"}
    restore()
    await scenario.drain(301)
    assert sorted(scenario.handed_over) == [2, 3]
    assert search_alert_key(SearchKind.LINE_TASKS) not in await refresh_search_alerts(scenario)


async def test_open_order_never_takes_lines_of_others(make_scenario: MakeScenario) -> None:
    """A glitch while an order is open: the Tasks of others are no late lines of it, and its results still end it.

    Even where a Task names two orders as its partOf: whose line it is was decided once.
    """
    scenario = make_scenario(2)
    other = scenario.world.place_order(pick_template(scenario.world, 3), relabel=True)
    await scenario.process_all()
    unknown = scenario.world.place_order(pick_template(scenario.world, 1), relabel=True)
    both = [{"reference": f"task/{task}"} for task in (other, scenario.task)]
    stray = {**scenario.world.line_tasks(other)[0], "partOf": both}
    change_answers(scenario, is_search_with("part-of"), add_rows(lambda: [stray]))
    add_tasks_of(scenario, unknown, other)
    await scenario.reconcile(drain=False)
    assert await scenario.line_states() == [LineState.ACCEPTED] * 2
    await scenario.finish()
    assert (await scenario.state(), scenario.statuses()) == (OrderState.CLOSED, ["completed"] * 2)


async def test_answers_about_other_orders_hold_the_order(make_scenario: MakeScenario) -> None:
    """What was assessed is kept, so that it can be refused; both the reason and the alert name the setting."""
    scenario = make_scenario(2)
    change_answers(scenario, is_search_with("subject"), add_rows(lambda: [OF_ANOTHER]))
    await scenario.process_all()
    await refresh_search_alerts(scenario)
    record = await scenario.order_record()
    texts = [str(record.reason), *(each.detail or "" for each in scenario.open_alerts().values())]
    assert (record.state, sum("`exchange.questionnaire_search`" in text for text in texts)) == (OrderState.HELD, 2)
    await scenario.reject_order("no")
    assert scenario.statuses() == ["cancelled"] * 2


@parametrize_first(
    "what, change",
    [
        ("specimen/", answer_with(500)),
        ("patient/", answer_with(200, "<html>sign in</html>")),
        ("procedurerequest/", answer_with(200, '{"id": ')),
    ],
)
async def test_broken_resource_counts_like_a_missing_one(
    make_scenario: MakeScenario, change: service_answers.Change, what: str
) -> None:
    """An error about one resource, beside good ones, is no outage: the order waits with its reason, then it is held."""
    scenario = make_scenario(1)
    restore = change_answers(scenario, is_read_of(what), change)
    await scenario.process_all()
    for state in (OrderState.SEEN, OrderState.HELD):
        record = await scenario.order_record()
        assert (record.state, what in str(record.reason)) == (state, True)
        await scenario.drain(scenario.world.settings.worker.unreadable_after + 60)
    assert AlertKey(ConditionId.EXCHANGE_PART_UNAVAILABLE, "fetch_order") not in scenario.open_alerts()
    restore()
    await scenario.drain(LONGEST_WAIT)
    assert await scenario.state() is OrderState.HANDED_OVER


# 422 to the search for answers says that the service does not offer it: the answers are unknown then.
SEARCHES = [("part-of", 418), ("subject", 403), ("part-of", 403), ("part-of", 422), ("subject", 401), ("subject", 418)]


@parametrize_first(
    "asked, status", [*SEARCHES, *((what, status) for what in ("specimen/", "task/") for status in (400, 418, 422))], 2
)
async def test_rejected_question_holds_until_it_is_allowed(make_scenario: MakeScenario, asked: str, status: int) -> None:
    """What the service says of it may name the patient: it is kept sealed."""
    scenario = make_scenario(1)
    applies, words = is_read_of(asked) if "/" in asked else is_search_with(asked), f"Ivanova is not shown: {asked}"
    restore = change_answers(scenario, applies, answer_with(status, words))
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, str(status) in str(record.reason), "Ivanova" in str(record.reason)) == (OrderState.HELD, True, False)
    assert [job.kind for job in await scenario.jobs()] == [JobKind.FETCH_ORDER]
    messages = await scenario.agent.store.run_read_only(lambda uow: uow.vault.service_messages(record.key))
    assert status == 401 or words in [said for (job,) in [messages.values()] for said in job][-1].text
    restore()
    await scenario.drain(301)
    assert await scenario.state() is OrderState.HANDED_OVER


# --- answers to questionnaires


def answers_in(bundle: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["resource"] for each in bundle["entry"] if each["resource"]["resourceType"] == "QuestionnaireResponse"]


def place_with_answers(change: Change) -> Scenario:
    """An order whose tests need answers, changed on its way."""
    world, known = World("answers"), catalogue().contract("C-100").items

    def needs_answers(bundle: dict[str, Any]) -> bool:
        items = {each["code"]["coding"][0]["code"] for each in procedure_requests(bundle)}
        return any(each.required for code in items if code in known for each in known[code].question_refs)

    found = templates(world.clock.now().replace(minute=0, second=0), 60)
    template = deepcopy(next(each for each in found if needs_answers(each.bundle)))
    change(template.bundle)
    return Scenario(world, world.agent(), world.place_order(template))


def without_right(bundle: dict[str, Any]) -> None:
    for each in answers_in(bundle):
        each["meta"]["security"] = [right for right in each["meta"]["security"] if right["code"] != LABORATORY_GUID]


def without_items(bundle: dict[str, Any]) -> None:
    for each in answers_in(bundle):
        each["item"] = []


SUPPRESSED = {"resourceType": "OperationOutcome", "issue": [{"severity": "information", "code": "suppressed"}]}
WITHHELD: list[dict[str, Any]] = [{"total": 9}, {"entry": [{"resource": SUPPRESSED, "search": {"mode": "outcome"}}]}]


@parametrize_first("change, more", [(without_right, {}), *((without_items, more) for more in WITHHELD)])
async def test_answers_that_are_not_seen_hold_the_order(change: Change, more: dict[str, Any]) -> None:
    """A service leaves out of a search what we may not read: nobody can tell that from answers that were never sent."""
    scenario = place_with_answers(change)

    def withhold(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        bundle = response.json()
        return httpx.Response(200, json={**bundle, **more, "entry": [*bundle.get("entry", []), *more.get("entry", [])]})

    change_answers(scenario, is_search_with("subject"), withhold)
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, record.hold_cause) == (OrderState.HELD, "questionnaire.visible")
    assert {scenario.status(), *scenario.statuses()} == {"requested"}
    if change is without_right:
        service = scenario.world.service
        for stored in service.store.find("QuestionnaireResponse", [], lambda _: True, limit=9):
            service.resources.add_rights(stored, [("read", LABORATORY_GUID)])
        await scenario.drain(301)
        assert await scenario.state() is OrderState.HANDED_OVER


# --- an index that is behind: what it says is checked by reading the Tasks by their ids


async def test_old_end_of_line_offered_again_withdraws_nothing(make_scenario: MakeScenario) -> None:
    """The order was refused, mended and offered again; the search still has the line as we had cancelled it."""
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    (line,) = scenario.line_tasks
    behind = answer_as_before(scenario, line)
    scenario.world.mend_item(line, pick_template(scenario.world, 1))
    scenario.force("requested")
    change_answers(scenario, is_search_with("part-of"), behind)
    await scenario.recheck(200)
    await scenario.reconcile()
    assert (await scenario.state(), await scenario.line_states()) == (OrderState.HANDED_OVER, [LineState.ACCEPTED])
    assert (scenario.told_lis, {scenario.status(), *scenario.statuses()}) == ([], {"requested"})


@parametrize_first("status", ["requested", "on-hold", "cancelled", "in-progress"], 2)
async def test_line_behind_search_is_handed_over_as_it_is(make_scenario: MakeScenario, status: str) -> None:
    """Both lists show it as it was: what is handed over is read by its id right before, however short the way there was."""
    scenario = make_scenario(2)
    changed = scenario.line_tasks[1]
    if status == "requested":  # it was ended and put back before the order was found
        scenario.force("cancelled", changed)
    change_answers(scenario, is_search_with("part-of"), answer_as_before(scenario, changed))
    scenario.force(status, changed)
    await scenario.process_all()
    submitted = {line.key for order in scenario.world.lis.submitted for line in order.lines}
    there = line_key(scenario.world.settings.exchange.base_url, ResourceId(changed)) in submitted
    assert (there, len(submitted)) == ((True, 2) if status == "requested" else (False, 1))


POISONED = answer_with(200, '{"resourceType": "Bundle", "type": "searchset", "entry": [{"x": "\\ud83d"}]}')
FAILING = {"poisoned": POISONED, "403": answer_with(403), "502": answer_with(502)}


@parametrize_first("answer", FAILING)
async def test_withdrawal_behind_failing_search_is_seen_and_told_once(make_scenario: MakeScenario, answer: str) -> None:
    """The lines are read by their ids then."""
    scenario = make_scenario(2)
    await scenario.process_all()
    restore = change_answers(scenario, is_search_with("part-of"), FAILING[answer])
    await scenario.reconcile(3, drain=False)
    assert len(scenario.told("task_unreadable")) == 1
    scenario.end(scenario.line_tasks[0])
    await scenario.reconcile(drain=False)
    assert await scenario.line_states() == [LineState.WITHDRAWN, LineState.ACCEPTED]
    restore()
    await scenario.reconcile(drain=False)
    assert not await scenario.is_told(ConditionId.ORDERS_TASK_UNREADABLE)
    change_answers(scenario, is_search_with("part-of"), FAILING[answer])
    scenario.end(scenario.line_tasks[1], scenario.task)
    await scenario.reconcile()
    assert (len(scenario.told_lis), await scenario.state()) == (2, OrderState.CLOSED)
