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
    """A scene with what the laboratory asked for its basket."""

    scenario: Scenario
    prepared: PreparedBasket


@dataclass(frozen=True, slots=True)
class PlacedScenario:
    """A scene with its accepted order."""

    scenario: Scenario
    order: PlacedOrder


class OrderPlacement:
    """The clinic orders; what the laboratory answers to its baskets is checked on the way."""

    def __init__(self, clinic: Clinic, check_list: CheckList, console: DemoConsole) -> None:
        self._clinic = clinic
        self._client = clinic.client
        self._check_list = check_list
        self._console = console

    async def run(self) -> list[PlacedScenario]:
        """All six points; an order that the service refuses is a failed check, and missing in what is given."""
        acts = await self._prepare_baskets(self._build_baskets(await self._fetch_nomenclature()))
        self._report_collection(acts)
        return await self._place_orders(acts)

    async def _fetch_nomenclature(self) -> list[Json]:
        self._console.heading("1  Nomenclature of the contract")
        nomenclature, eta = await asyncio.gather(self._client.nomenclature(), self._client.eta())
        offer = orderable_items(nomenclature, eta)
        self._check_list.record("nomenclature: tests can be ordered", bool(offer), f"{len(offer)} of {len(nomenclature)}")
        timed = {one["id"] for one in eta} >= {one["id"] for one in nomenclature}
        self._check_list.record("eta: every test has a turnaround time", timed)
        return offer

    def _build_baskets(self, items: Sequence[Json]) -> list[Scenario]:
        self._console.heading("2  The operator builds baskets")
        listed = build_scenarios(self._client.account.contract, items)
        for scene in listed:
            tests = ", ".join(item.caption for item in scene.plan.basket.items)
            self._console.step(f"{scene.name}: {scene.title} ({tests})")
        return listed

    async def _prepare_baskets(self, scenarios: Sequence[Scenario]) -> list[PreparedScenario]:
        self._console.heading("3  Questionnaire and  4  pre-analytics, each for the whole basket")
        acts = [PreparedScenario(scene, await self._clinic.prepare_basket(scene.plan)) for scene in scenarios]
        for act in acts:
            name, specimens = act.scenario.name, act.prepared.specimens
            wanted = {item.guid for item in act.scenario.plan.basket.items}
            covered = {guid for one in specimens for guid in one["guids"]} == wanted
            links = _question_link_ids(act.prepared.questionnaire)
            detail = ", ".join(
                (pluralize(len(wanted), "test"), pluralize(len(specimens), "tube"), pluralize(len(links), "question"))
            )
            self._check_list.record(f"{name}: every test has its tube", covered, detail)
            self._check_list.record(f"{name}: no question is asked twice", len(links) == len(set(links)))
        shared = max((len(one["guids"]) for one in acts[0].prepared.specimens), default=0)
        self._check_list.record("shared: several tests share one tube", shared > 1, f"{shared} tests in one tube")
        return acts

    def _report_collection(self, prepared: Sequence[PreparedScenario]) -> None:
        self._console.heading("5  The clinic collects the biomaterial and labels the tubes")
        self._console.step(
            f"{pluralize(sum(len(act.prepared.specimens) for act in prepared), 'tube')} for {pluralize(len(prepared), 'order')}"
        )

    async def _place_orders(self, prepared: Sequence[PreparedScenario]) -> list[PlacedScenario]:
        self._console.heading("6  Each order is created with one bundle request")
        ordered = []
        for act in prepared:
            with self._check_list.record_partner_errors(f"{act.scenario.name}: the service accepts the order"):
                bundle = await self._clinic.build_bundle(act.scenario.plan, act.prepared)
                order = await self._clinic.send_bundle(
                    act.scenario.change_bundle(bundle) if act.scenario.change_bundle else bundle
                )
                ordered.append(PlacedScenario(act.scenario, order))
                detail = f"requisition {order.requisition}, {pluralize(len(order.lines), 'line')}, barcodes {', '.join(order.barcodes)}"
                self._check_list.record(f"{act.scenario.name}: the service accepts the order", True, detail)
        return ordered


def _question_link_ids(questionnaire: Json) -> list[str]:
    """The linkIds of everything that wants an answer, and not of the groups around it."""

    def walk(item: Json) -> list[str]:
        nested = [link for each in item.get("item", ()) for link in walk(each)]
        return nested if item["type"] == "group" else [item["linkId"]]

    top = questionnaire.get("item")
    return walk(top) if top else []
