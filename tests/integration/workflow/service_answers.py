"""A service that answers otherwise than the sandbox: a test changes single answers on their way to the agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx

from lab_sandbox.faults.plan import FaultPlan, FaultRule

if TYPE_CHECKING:
    from tests.harness.world import World
    from tests.integration.workflow.conftest import Scenario

Change = Callable[[httpx.Request, httpx.Response], httpx.Response]


def inject(world: World, **rule: Any) -> None:
    """Let the service have this fault, and no other, from now on."""
    world.service.faults.activate(FaultPlan(faults=(FaultRule.model_validate(rule),)))


def change_answers(scenario: Scenario, applies: Callable[[httpx.Request], bool], change: Change) -> Callable[[], None]:
    """From now on the answers to these requests are changed; gives what ends that."""
    transport = scenario.agent._http._transport  # type: ignore[attr-defined]
    handle = transport.handle_async_request

    async def changed(request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await handle(request)
        if not applies(request):
            return response
        await response.aread()
        return change(request, response)

    transport.handle_async_request = changed
    return lambda: setattr(transport, "handle_async_request", handle)


def answer_with(status: int, body: str = "", **headers: str) -> Change:
    """A change: this answer instead."""
    return lambda request, response: httpx.Response(status, content=body, headers=headers)


def add_rows(rows: Callable[[], list[dict[str, Any]]]) -> Change:
    """A change of a search: these resources come, too."""

    def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        bundle = json.loads(response.content)
        bundle["entry"] = [*bundle.get("entry", []), *({"resource": row} for row in rows())]
        return httpx.Response(200, json=bundle)

    return change


def is_read_of(resource: str) -> Callable[[httpx.Request], bool]:
    """Reads of one type, or of one resource (`task/<id>`)."""
    return lambda request: request.method == "GET" and not request.url.query and f"/{resource}" in request.url.path.lower()


def is_search_with(parameter: str) -> Callable[[httpx.Request], bool]:
    """Searches with this parameter."""
    return lambda request: request.method == "GET" and parameter in request.url.params


def answer_as_before(scenario: Scenario, *tasks: str) -> Change:
    """A change of a search: it gives these Tasks as they are now, whatever becomes of them, as an index that is behind does."""
    before = {task: scenario.world.get_task(task) for task in tasks}

    def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        bundle = json.loads(response.content)
        for entry in bundle.get("entry", []):
            entry["resource"] = before.get(entry["resource"]["id"], entry["resource"])
        return httpx.Response(200, json=bundle)

    return change
