"""Holding (law 10): what may be our own fault is held with an alert, never refused, and goes on when it is mended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.errors import InvalidTransitionError
from lab_agent.workflow import operator_jobs, operator_orders
from lab_agent.workflow.intake import QUESTIONNAIRE_SEARCH_MISSING_SINCE
from lab_sandbox.references import Ref
from tests.harness.orders import templates
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, tripped_rule_alert_key

MakeScene = Callable[..., Scenario]


async def later(here: Scenario, seconds: float) -> None:
    here.world.clock.advance(seconds)
    await here.world.drain(here.agent)


def withdraw_right(here: Scenario) -> Callable[[], None]:
    """The laboratory may not read the order's first Specimen any more; gives the way back."""
    service = here.world.service
    request = here.world.get_task(here.line_tasks[0])["basedOn"][0]["reference"].rsplit("/", 1)[-1]
    kept = service.resources.find(Ref("ProcedureRequest", request))
    assert kept is not None
    shelf_get = service.resources.get

    def get(ref: Ref, caller: Any, *args: Any, **options: Any) -> Any:
        if ref == kept.ref and caller.guid == here.world.laboratory.guid:
            raise service.resources._missing_right_error(ref, "read")
        return shelf_get(ref, caller, *args, **options)

    service.resources.get = get  # type: ignore[method-assign]

    def mend() -> None:
        service.resources.get = shelf_get  # type: ignore[method-assign]

    return mend


async def test_empty_catalogue_holds_until_it_returns(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    here.world.catalogues.available = False
    await here.process_all()
    assert (await here.order_record()).state is OrderState.HELD
    assert here.statuses() == ["requested"] * 2
    here.world.catalogues.available = True
    await later(here, 301)
    assert (await here.order_record()).state is OrderState.HANDED_OVER
    assert not await here.is_alert_open(f"order.{(await here.order_record()).key}.held")


async def test_unreadable_resource_retried_then_held_with_alert(make_scenario: MakeScene) -> None:
    """What cannot be read is tried again, then held with an alert that names it."""
    here = make_scenario(1)
    mend = withdraw_right(here)
    await here.process_all()
    assert (await here.order_record()).state is OrderState.SEEN
    assert "cannot be read yet: " in str((await here.order_record()).reason)
    await later(here, here.world.settings.worker.unreadable_after + 60)
    record = await here.order_record()
    assert record.state is OrderState.HELD
    assert "procedurerequest/" in str(record.reason)
    mend()
    await later(here, 301)
    assert (await here.order_record()).state is OrderState.HANDED_OVER
    assert not await here.is_alert_open(f"order.{record.key}.held")


async def test_unreadable_resource_is_held_indefinitely_by_default(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    withdraw_right(here)
    await here.process_all()
    for _ in range(5):
        await later(here, 86_400)
    assert (await here.order_record()).state is OrderState.HELD
    assert here.statuses() == ["requested"]


async def test_unreadable_resource_is_rejected_after_configured_time(make_scenario: MakeScene) -> None:
    here = make_scenario(1, unreadable_refuse_after=7200)
    withdraw_right(here)
    await here.process_all()
    await later(here, 3600)
    assert (await here.order_record()).state is OrderState.HELD
    await later(here, 3700)
    await here.world.drain(here.agent)
    assert here.statuses() == ["cancelled"]
    assert here.status() == "cancelled"
    assert "cannot read it" in here.outputs(here.line_tasks[0])[0]


async def test_order_without_lines_is_held_with_alert(make_scenario: MakeScene) -> None:
    """An order without lines is held, and not fetched for ever without notice."""
    here = make_scenario(1)

    async def none(_: str) -> tuple[()]:
        return ()

    here.agent.exchange.line_tasks = none  # type: ignore[method-assign, assignment]
    await here.process_all()
    assert (await here.order_record()).state is OrderState.SEEN
    await later(here, here.world.settings.worker.unreadable_after + 1)
    assert (await here.order_record()).state is OrderState.HELD
    assert await here.is_alert_open(f"order.{(await here.order_record()).key}.held")


async def test_unreadable_order_task_is_held_with_alert(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.agent.poll.run()
    get = here.world.service.resources.get

    def refused(ref: Ref, caller: Any, *args: Any, **options: Any) -> Any:
        if ref.id == here.task:
            raise here.world.service.resources._missing_right_error(ref, "read")
        return get(ref, caller, *args, **options)

    here.world.service.resources.get = refused  # type: ignore[method-assign]
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.SEEN
    await later(here, here.world.settings.worker.unreadable_after + 31)
    assert (await here.order_record()).state is OrderState.HELD
    assert await here.is_alert_open(f"order.{(await here.order_record()).key}.held")


async def test_operator_rejects_a_held_order(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    here.world.catalogues.available = False
    await here.process_all()
    record = await here.order_record()
    service, now = here.world.settings.exchange.base_url, here.world.clock.now()
    await operator_orders.reject_order(here.world.store, service, record.key, "we do not do this", by="eve", now=now)
    await here.world.drain(here.agent)
    assert here.statuses() == ["cancelled"] * 2
    assert [here.outputs(task) for task in here.line_tasks] == [["we do not do this"]] * 2
    assert (await here.order_record()).state is OrderState.CLOSED
    assert not await here.is_alert_open(f"order.{record.key}.held")
    with pytest.raises(InvalidTransitionError, match="only a held order"):
        await operator_orders.reject_order(here.world.store, service, record.key, "again", by="eve", now=now)


async def test_tripped_breaker_holds_orders_until_reset() -> None:
    """Many rejections by one rule trip the breaker; its reset lets the held orders proceed."""
    world = World("catch")
    limit = world.settings.rules.refusal_limit
    found = templates(world.clock.now().replace(minute=0, second=0))
    tasks = [world.place_order(found[0], spoil=0, relabel=True) for _ in range(limit + 3)]
    here = Scenario(world, world.agent(), tasks[0])
    await here.agent.poll.run()
    await world.drain(here.agent, until=timedelta(seconds=60))
    states = [(await world.stored_order(task))[0].state for task in tasks]
    assert states.count(OrderState.HELD) == 3
    held = [task for task, state in zip(tasks, states, strict=True) if state is OrderState.HELD]
    assert {world.get_task(task)["status"] for task in held} == {"requested"}
    assert await operator_jobs.reset_tripped_rule(world.store, "line.item", now=world.clock.now())
    assert not await here.is_alert_open(tripped_rule_alert_key("line.item"))
    assert await here.agent.run_jobs(JobKind.FETCH_ORDER) == 3, "what it had held is looked at at once"
    assert {(await world.stored_order(task))[0].state for task in held}.isdisjoint({OrderState.HELD, OrderState.SEEN})


async def test_observe_mode_writes_nothing(make_scenario: MakeScene) -> None:
    here = make_scenario(2, spoil=0, mode="observe")
    sent: list[str] = []
    handle = here.agent._http._transport.handle_async_request  # type: ignore[attr-defined]

    async def listen(request: Any) -> Any:
        sent.append(request.method)
        return await handle(request)

    here.agent._http._transport.handle_async_request = listen  # type: ignore[attr-defined]
    await here.process_all()
    await later(here, 700)
    assert set(sent) == {"GET"}
    record = await here.order_record()
    assert "observe: would be rejected in part or whole by line.item" in str(record.reason)
    assert {job.kind for job in await here.jobs(open_only=False)} == {JobKind.FETCH_ORDER}
    assert here.world.lis.submitted == []


async def test_orders_before_ignore_date_are_left_alone(make_scenario: MakeScene) -> None:
    here = make_scenario(2, spoil=0, ignore_before="2026-03-02T13:00:00+00:00")
    await here.process_all()
    record = await here.order_record()
    assert record.state is OrderState.CLOSED
    assert "ignore_before" in str(record.reason)
    assert here.world.status_history(here.task) == ["requested"]
    assert here.statuses() == ["requested"] * 2
    assert await here.agent.poll.run() == 0


async def test_unsearchable_questionnaire_answers_never_reject(make_scenario: MakeScene) -> None:
    """Questionnaire answers that cannot be searched for are noted and never reject an order."""
    here = make_scenario(2, rules={"questionnaire_search": False})
    await here.process_all()
    assert (await here.order_record()).state is OrderState.HANDED_OVER
    assert await here.world.store.run(lambda uow: uow.key_values.get(QUESTIONNAIRE_SEARCH_MISSING_SINCE))


async def test_configured_hold_severity_holds_order(make_scenario: MakeScene) -> None:
    """A rule that rejects by default is given the severity hold."""
    here = make_scenario(1, spoil=0)
    rules = here.world.settings.rules.model_copy(update={"severities": {"line.item": "hold"}})
    here.world.settings = here.world.settings.model_copy(update={"rules": rules})
    here.agent = here.world.agent("stricter")
    await here.process_all()
    assert (await here.order_record()).state is OrderState.HELD
    assert [line.state for line in await here.lines()] == [] != [LineState.REJECTED]
