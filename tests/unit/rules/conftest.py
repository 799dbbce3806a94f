from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent import exact_json
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.domain.code_systems import CodeSystems
from lab_agent.domain.received_order import ReceivedOrder, ResourceRef
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts
from lab_agent.rules.engine import Assessment, assess
from tests.harness.paths import CATALOGUE, ROOT


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return load_catalogue(CATALOGUE)


@pytest.fixture
def wire() -> dict[str, Any]:
    return exact_json.loads((ROOT / "tests" / "unit" / "fhir" / "order.json").read_bytes())


@pytest.fixture
def order_from_wire() -> Callable[[dict[str, Any]], ReceivedOrder]:
    def make(wire: dict[str, Any]) -> ReceivedOrder:
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
        return parse_order(graph)

    return make


@pytest.fixture
def facts() -> Facts:
    return Facts(
        now=datetime(2026, 3, 2, 12, tzinfo=UTC),
        systems=CodeSystems(
            base_url="https://exchange.example/api",
            lab_codes_url="https://lab.example/codes/",
            second_labels_system="https://lab.example/second-labels",
        ),
        known_contracts=frozenset({"C-100", "C-200"}),
        contract_codes_by_id={"c1": "C-100", "c2": "C-200"},
        own_guid="lab-guid",
    )


@pytest.fixture
def assess_wire(
    order_from_wire: Callable[[dict[str, Any]], ReceivedOrder], catalogue: Catalogue, facts: Facts
) -> Callable[..., Assessment]:
    """Judges a wire form; `facts` and `catalogue` may be replaced."""

    def make(wire: dict[str, Any], **changes: Any) -> Assessment:
        view = CatalogueHistory.from_catalogue(catalogue)
        return assess(order_from_wire(wire), **{"catalogue": view, "facts": facts, **changes})

    return make


@pytest.fixture
def rule_outcomes() -> Callable[[Assessment], dict[str, str]]:
    """The rules that found anything, each with what it does."""

    def make(judgement: Assessment) -> dict[str, str]:
        return {finding.rule: finding.severity.value for finding in judgement.findings()}

    return make
