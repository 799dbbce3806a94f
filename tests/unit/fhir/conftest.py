from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab_agent import exact_json
from lab_agent.domain.code_systems import CodeSystems
from lab_agent.domain.received_order import ResourceRef
from lab_agent.fhir.order_graph import OrderGraph

GraphFactory = Callable[[Mapping[str, Any]], OrderGraph]


@pytest.fixture
def wire() -> dict[str, Any]:
    """The sample order as it is on the wire, fresh for each test."""
    return exact_json.loads((Path(__file__).parent / "order.json").read_bytes())


@pytest.fixture
def graph_from_wire() -> GraphFactory:
    """Makes a fetched graph of the wire form."""

    def make(wire: Mapping[str, Any]) -> OrderGraph:
        return OrderGraph(
            base_url=wire["base_url"],
            order_task=wire["order_task"],
            line_tasks=tuple(wire["line_tasks"]),
            resources={ResourceRef(*name.split("/")): body for name, body in wire["resources"].items()},
            questionnaire_responses=None if wire["questionnaire_responses"] is None else tuple(wire["questionnaire_responses"]),
        )

    return make


@pytest.fixture
def systems() -> CodeSystems:
    return CodeSystems(
        base_url="https://exchange.example/api/",
        lab_codes_url="https://lab.example/codes",
        second_labels_system="https://lab.example/second-labels",
    )
