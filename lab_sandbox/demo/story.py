"""The daily flow, told point by point as the interface document lists it, from the partner's side alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lab_sandbox.demo.findings import Found, by_code, judge
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.record import Record
from lab_sandbox.demo.scenes import Scene, scenes
from lab_sandbox.demo.screen import Screen, counted
from lab_sandbox.partner.basket import orderable
from lab_sandbox.partner.clinic import Clinic, Prepared
from lab_sandbox.partner.placed import PlacedOrder
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.reading import OrderStatus, Report, documents, order_status, reports, until

_ORGANISM, _COUNT = "630-4", "19090-0"


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


class Story:
    """Tells the story once. `patience` is how many seconds anything may take that the laboratory's side does."""

    def __init__(self, clinic: Clinic, record: Record, ledger: Ledger, screen: Screen, patience: float) -> None:
        self._clinic = clinic
        self._client = clinic.client
        self._record = record
        self._ledger = ledger
        self._screen = screen
        self._patience = patience

    async def tell(self) -> dict[str, Json]:
        """All eight points; gives each order as the partner sees it at the end."""
        offer = await self._nomenclature()
        acts = await self._prepare(self._baskets(offer))
        self._collect(acts)
        ordered = await self._order(acts)
        self._screen.heading("7  The laboratory polls, checks and sets the Tasks")
        await asyncio.gather(*(self._processed(one) for one in ordered))
        self._screen.heading("8  The laboratory uploads results; the clinic reads them")
        for one in ordered:
            with self._ledger.about(f"{one.scene.name}: can be read to its end"):
                await self._results(one)
        with self._ledger.about("the clinic is notified"):
            await self._notified(ordered)
        return {one.scene.name: await self._summary(one) for one in ordered}

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

    async def _processed(self, one: Ordered) -> None:
        """The first sign of the laboratory's work that a partner sees: a report, or a Task at its end."""
        name = f"{one.scene.name}: the laboratory has taken it up"
        with self._ledger.about(name):
            status, found = await until(
                lambda: asyncio.gather(order_status(self._client, one.order), reports(self._client, one.order)),
                lambda seen: bool(seen[1]) or seen[0].ended(),
                within=self._patience,
                what=name,
            )
            self._ledger.note(name, True, f"{status}; {counted(len(found), 'report')}")

    async def _results(self, one: Ordered) -> None:
        self._screen.step(f"{one.scene.name}: {one.scene.title}")
        if one.scene.staged:
            await self._grown(one)
        status = await until(
            lambda: order_status(self._client, one.order),
            OrderStatus.ended,
            within=self._patience,
            what=f"{one.scene.name}: Tasks",
        )
        found = await self._reports(one)
        files = [await documents(self._client, report) for report in found]
        judge(one.scene, one.order, Found(status, found, files), self._record.reported(one.order.requisition), self._ledger)
        if one.scene.plan.patient == "anonymous":
            await self._anonymous(one)

    async def _reports(self, one: Ordered) -> list[Report]:
        """The order's reports, as soon as there are as many as the laboratory says it wrote."""
        expected = len(self._record.reported(one.order.requisition))
        return await until(
            lambda: reports(self._client, one.order),
            lambda found: len(found) >= expected,
            within=self._patience,
            what=f"{one.scene.name}: {expected} reports",
        )

    async def _grown(self, one: Ordered) -> None:
        """Preliminary, then final, then corrected: each seen by the partner before the next is let go."""
        name, requisition = one.scene.name, one.order.requisition
        early = await self._organism(one, "preliminary", "while it grows")
        status = await order_status(self._client, one.order)
        self._ledger.note(f"{name}: preliminary, and its Task still open", not status.ended(), f"{status}")
        self._record.let_go(requisition, "final")
        final = await self._organism(one, "final", "when it is read", after=early)
        await until(
            lambda: order_status(self._client, one.order), OrderStatus.ended, within=self._patience, what=f"{name}: Tasks"
        )
        self._record.let_go(requisition, "corrected")
        last = await self._organism(one, "amended", "when it is corrected", after=final)
        same = {early.resource["id"], final.resource["id"], last.resource["id"]}
        self._ledger.note(f"{name}: three versions of one report, the last one final", len(same) == 1 and last.status == "final")
        before, after = (_version(by_code(report, _COUNT)) for report in (final, last))
        self._ledger.note(f"{name}: what the correction leaves alone was not sent again", before is not None and before == after)

    async def _organism(self, one: Ordered, wanted: str, when: str, after: Report | None = None) -> Report:
        """Waits for the version of the report, another one than `after`, whose organism has this status.

        The report is what a clinic goes by: its Observations may be there a moment earlier.
        """
        old = None if after is None else _version(after.resource)

        def is_it(report: Report) -> bool:
            organism = by_code(report, _ORGANISM) or {}
            return organism.get("status") == wanted and _version(report.resource) != old

        found = await until(
            lambda: reports(self._client, one.order),
            lambda listed: any(is_it(report) for report in listed),
            within=self._patience,
            what=f"{one.scene.name}: {wanted}",
        )
        report = next(each for each in found if is_it(each))
        self._ledger.note(f"{one.scene.name}: the organism is {wanted} {when}", True, _words(by_code(report, _ORGANISM)))
        return report

    async def _anonymous(self, one: Ordered) -> None:
        name = (await self._client.read(one.order.patient))["name"][0]
        right = len(name["family"]) == 10 and name["family"].isdigit() and name["given"] == ["-", "-"]
        self._ledger.note(f"{one.scene.name}: the patient is a number, with no name", right)

    async def _notified(self, ordered: Sequence[Ordered]) -> None:
        told = {(one["order_task"], one["status"]) for one in await self._client.notifications() if one["level"] == "order"}
        missing = [one.scene.name for one in ordered if (f"task/{one.order.order_task}", "completed") not in told]
        self._ledger.note("the clinic is notified of the end of every order", not missing, ", ".join(missing))

    async def _summary(self, one: Ordered) -> Json:
        status, found = await asyncio.gather(order_status(self._client, one.order), reports(self._client, one.order))
        lines = {line.item: status.lines[line.procedure_request] for line in one.order.lines}
        return {"requisition": one.order.requisition, "status": status.order, "lines": lines, "reports": len(found)}


def _questions(questionnaire: Json) -> list[str]:
    """The linkIds of everything that wants an answer, and not of the groups around it."""

    def walk(item: Json) -> list[str]:
        nested = [link for each in item.get("item", ()) for link in walk(each)]
        return nested if item["type"] == "group" else [item["linkId"]]

    top = questionnaire.get("item")
    return walk(top) if top else []


def _version(resource: Json | None) -> str | None:
    return None if resource is None else str(resource["meta"]["versionId"])


def _words(observation: Json | None) -> str:
    seen = observation or {}
    return str(seen.get("valueString") or seen.get("valueCodeableConcept", {}).get("text", ""))
