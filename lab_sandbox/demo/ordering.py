"""Points 1 to 6 of the daily flow: from the nomenclature to the accepted orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.scenes import Scene, scenes
from lab_sandbox.demo.screen import Screen, counted
from lab_sandbox.partner.basket import orderable
from lab_sandbox.partner.clinic import Clinic, Prepared
from lab_sandbox.partner.placed import PlacedOrder
from lab_sandbox.partner.plain_json import Json


@dataclass(frozen=True, slots=True)
class Act:
    """A scene with what the laboratory asked for its basket."""

    scene: Scene
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class Ordered:
    """A scene with its accepted order."""

    scene: Scene
    order: PlacedOrder


class Ordering:
    """The clinic orders; what the laboratory answers to its baskets is checked on the way."""

    def __init__(self, clinic: Clinic, ledger: Ledger, screen: Screen) -> None:
        self._clinic = clinic
        self._client = clinic.client
        self._ledger = ledger
        self._screen = screen

    async def go(self) -> list[Ordered]:
        """All six points; an order that the service refuses is a failed check, and missing in what is given."""
        acts = await self._prepare(self._baskets(await self._nomenclature()))
        self._collect(acts)
        return await self._order(acts)

    async def _nomenclature(self) -> list[Json]:
        self._screen.heading("1  Nomenclature of the contract")
        nomenclature, eta = await asyncio.gather(self._client.nomenclature(), self._client.eta())
        offer = orderable(nomenclature, eta)
        self._ledger.note("nomenclature: tests can be ordered", bool(offer), f"{len(offer)} of {len(nomenclature)}")
        timed = {one["id"] for one in eta} >= {one["id"] for one in nomenclature}
        self._ledger.note("eta: every test has a turnaround time", timed)
        return offer

    def _baskets(self, offer: Sequence[Json]) -> list[Scene]:
        self._screen.heading("2  The operator builds baskets")
        listed = scenes(self._client.account.contract, offer)
        for scene in listed:
            tests = ", ".join(item.caption for item in scene.plan.basket.items)
            self._screen.step(f"{scene.name}: {scene.title} ({tests})")
        return listed

    async def _prepare(self, listed: Sequence[Scene]) -> list[Act]:
        self._screen.heading("3  Questionnaire and  4  pre-analytics, each for the whole basket")
        acts = [Act(scene, await self._clinic.prepare(scene.plan)) for scene in listed]
        for act in acts:
            name, specimens = act.scene.name, act.prepared.specimens
            wanted = {item.guid for item in act.scene.plan.basket.items}
            covered = {guid for one in specimens for guid in one["guids"]} == wanted
            links = _questions(act.prepared.questionnaire)
            detail = ", ".join((counted(len(wanted), "test"), counted(len(specimens), "tube"), counted(len(links), "question")))
            self._ledger.note(f"{name}: every test has its tube", covered, detail)
            self._ledger.note(f"{name}: no question is asked twice", len(links) == len(set(links)))
        shared = max((len(one["guids"]) for one in acts[0].prepared.specimens), default=0)
        self._ledger.note("shared: several tests share one tube", shared > 1, f"{shared} tests in one tube")
        return acts

    def _collect(self, acts: Sequence[Act]) -> None:
        self._screen.heading("5  The clinic collects the biomaterial and labels the tubes")
        self._screen.step(
            f"{counted(sum(len(act.prepared.specimens) for act in acts), 'tube')} for {counted(len(acts), 'order')}"
        )

    async def _order(self, acts: Sequence[Act]) -> list[Ordered]:
        self._screen.heading("6  Each order is created with one bundle request")
        ordered = []
        for act in acts:
            with self._ledger.about(f"{act.scene.name}: the service accepts the order"):
                bundle = await self._clinic.bundle(act.scene.plan, act.prepared)
                order = await self._clinic.send(act.scene.change(bundle) if act.scene.change else bundle)
                ordered.append(Ordered(act.scene, order))
                detail = (
                    f"requisition {order.requisition}, {counted(len(order.lines), 'line')}, barcodes {', '.join(order.barcodes)}"
                )
                self._ledger.note(f"{act.scene.name}: the service accepts the order", True, detail)
        return ordered


def _questions(questionnaire: Json) -> list[str]:
    """The linkIds of everything that wants an answer, and not of the groups around it."""

    def walk(item: Json) -> list[str]:
        nested = [link for each in item.get("item", ()) for link in walk(each)]
        return nested if item["type"] == "group" else [item["linkId"]]

    top = questionnaire.get("item")
    return walk(top) if top else []
