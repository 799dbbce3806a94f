"""Points 1 to 6 of the daily flow: from the nomenclature to the accepted orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lab_sandbox.demo.checks import CheckList
from lab_sandbox.demo.console import DemoConsole, pluralize
from lab_sandbox.demo.scenarios import Scenario, build_scenarios
from lab_sandbox.partner.basket import orderable_items
from lab_sandbox.partner.clinic import Clinic, PlacedOrder, PreparedBasket
from lab_sandbox.partner.errors import Json


@dataclass(frozen=True, slots=True)
class PreparedScenario:
    """A scenario with the questionnaire and pre-analytics of its basket."""

    scenario: Scenario
    prepared: PreparedBasket


@dataclass(frozen=True, slots=True)
class PlacedScenario:
    """A scenario with its accepted order."""

    scenario: Scenario
    order: PlacedOrder


class OrderPlacement:
    """The clinic places its orders; the laboratory's answers to its baskets are checked on the way."""

    def __init__(self, clinic: Clinic, check_list: CheckList, console: DemoConsole) -> None:
        self._clinic = clinic
        self._client = clinic.client
        self._check_list = check_list
        self._console = console

    async def run(self) -> list[PlacedScenario]:
        """All six points; an order that the service rejects is a failed check, and missing in the result."""
        prepared = await self._prepare_baskets(self._build_baskets(await self._fetch_nomenclature()))
        self._report_collection(prepared)
        return await self._place_orders(prepared)

    async def _fetch_nomenclature(self) -> list[Json]:
        self._console.heading("1  Nomenclature of the contract")
        nomenclature, eta = await asyncio.gather(self._client.nomenclature(), self._client.eta())
        items = orderable_items(nomenclature, eta)
        self._check_list.record("nomenclature: tests can be ordered", bool(items), f"{len(items)} of {len(nomenclature)}")
        complete = {one["id"] for one in eta} >= {one["id"] for one in nomenclature}
        self._check_list.record("eta: every test has a turnaround time", complete)
        return items

    def _build_baskets(self, items: Sequence[Json]) -> list[Scenario]:
        self._console.heading("2  The operator builds baskets")
        scenarios = build_scenarios(self._client.account.contract, items)
        for scenario in scenarios:
            tests = ", ".join(item.caption for item in scenario.plan.basket.items)
            self._console.step(f"{scenario.name}: {scenario.title} ({tests})")
        return scenarios

    async def _prepare_baskets(self, scenarios: Sequence[Scenario]) -> list[PreparedScenario]:
        self._console.heading("3 and 4  Questionnaire and pre-analytics, each for the whole basket")
        prepared = [PreparedScenario(one, await self._clinic.prepare_basket(one.plan)) for one in scenarios]
        for one in prepared:
            self._check_basket(one)
        first = prepared[0]
        shared = max((len(specimen["guids"]) for specimen in first.prepared.specimens), default=0)
        self._check_list.record(f"{first.scenario.name}: several tests share one tube", shared > 1, f"{shared} tests in one tube")
        return prepared

    def _check_basket(self, prepared: PreparedScenario) -> None:
        name, specimens = prepared.scenario.name, prepared.prepared.specimens
        ordered = {item.guid for item in prepared.scenario.plan.basket.items}
        covered = {guid for one in specimens for guid in one["guids"]} == ordered
        links = _question_link_ids(prepared.prepared.questionnaire)
        counts = (pluralize(len(ordered), "test"), pluralize(len(specimens), "tube"), pluralize(len(links), "question"))
        self._check_list.record(f"{name}: every test has a tube", covered, ", ".join(counts))
        self._check_list.record(f"{name}: no question is asked twice", len(links) == len(set(links)))

    def _report_collection(self, prepared: Sequence[PreparedScenario]) -> None:
        self._console.heading("5  The clinic collects the biomaterial and labels the tubes")
        tubes = sum(len(one.prepared.specimens) for one in prepared)
        self._console.step(f"{pluralize(tubes, 'tube')} for {pluralize(len(prepared), 'order')}")

    async def _place_orders(self, prepared: Sequence[PreparedScenario]) -> list[PlacedScenario]:
        self._console.heading("6  Each order is created with one bundle")
        placed = []
        for one in prepared:
            check, change = f"{one.scenario.name}: the service accepts the order", one.scenario.change_bundle
            with self._check_list.record_partner_errors(check):
                bundle = await self._clinic.build_bundle(one.scenario.plan, one.prepared)
                order = await self._clinic.send_bundle(change(bundle) if change else bundle)
                placed.append(PlacedScenario(one.scenario, order))
                lines, barcodes = pluralize(len(order.lines), "line"), ", ".join(order.barcodes)
                self._check_list.record(check, True, f"requisition {order.requisition}, {lines}, barcodes {barcodes}")
        return placed


def _question_link_ids(questionnaire: Json) -> list[str]:
    """The linkIds of all questions; groups have no answer of their own."""

    def walk(item: Json) -> list[str]:
        nested = [link for each in item.get("item", ()) for link in walk(each)]
        return nested if item["type"] == "group" else [item["linkId"]]

    top = questionnaire.get("item")
    return walk(top) if top else []
