"""The sample order as it is on the wire, and the graph that is fetched of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.fhir.received_order import ReceivedOrder, ResourceRef
from lab_agent.shared import exact_json
from lab_agent.shared.code_systems import CodeSystems

Wire = dict[str, Any]
Change = Callable[[Wire], Any]
SYSTEMS = CodeSystems(
    base_url="https://exchange.example/api/",
    lab_codes_url="https://lab.example/codes",
    second_labels_system="https://lab.example/second-labels",
)


def order_wire(*changes: Change) -> Wire:
    """Fresh, and changed."""
    wire = exact_json.loads((Path(__file__).parent / "order.json").read_bytes())
    for change in changes:
        change(wire)
    return wire


def graph_of(wire: Wire) -> OrderGraph:
    """What was fetched of it; `unreadable` names what was refused."""
    responses = wire["questionnaire_responses"]
    graph = OrderGraph(
        base_url=wire["base_url"],
        order_task=wire["order_task"],
        line_tasks=tuple(wire["line_tasks"]),
        resources={ResourceRef(*name.split("/")): body for name, body in wire["resources"].items()},
        questionnaire_responses=None if responses is None else tuple(responses),
    )
    for name in wire.get("unreadable", ()):
        graph = graph.with_unreadable(ResourceRef(*name.split("/")), "reading it was answered with 403 (forbidden)", 403)
    return graph


def parsed(*changes: Change) -> ReceivedOrder:
    return parse_order(graph_of(order_wire(*changes)))


def resource(name: str) -> Callable[[Wire], Any]:
    return lambda wire: wire["resources"][name]


pr1, pr2, patient = resource("ProcedureRequest/pr1"), resource("ProcedureRequest/pr2"), resource("Patient/p1")
s1, s2, s3 = resource("Specimen/s1"), resource("Specimen/s2"), resource("Specimen/s3")


def answers(wire: Wire) -> Any:
    return wire["questionnaire_responses"][0]


def places(value: Any) -> Any:
    """Each value within it, as its owner and key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        yield value, key
        yield from places(item)


def put(where: Callable[[Wire], Any], *path: Any, to: Any) -> Change:
    """Set one place; `to=None` removes it."""

    def change(wire: Wire) -> None:
        owner = where(wire)
        for key in path[:-1]:
            owner = owner[key]
        if to is None:
            del owner[path[-1]]
        else:
            owner[path[-1]] = to

    return change
