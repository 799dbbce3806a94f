"""The clinic at work: from a plan to an order that the service has accepted (interface: Daily flow, points 3 to 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lab_sandbox.partner.answers import answered
from lab_sandbox.partner.bundle import Draft, order_bundle
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.generator import Plan
from lab_sandbox.partner.labels import Labels
from lab_sandbox.partner.patients import anonymous_patient, named_patient
from lab_sandbox.partner.placed import PlacedOrder, placed_order
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.seeded import chance

Change = Callable[[Json], Json]
"""What is done to a finished bundle before it is sent: tests make one thing wrong with it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the laboratory asks for a basket: its questionnaire and the elements of its pre-analytics answer."""

    questionnaire: Json
    specimens: tuple[Json, ...]


class Clinic:
    """Places orders of one partner. `clock` gives the time with its offset, `run` keeps requisitions of several runs apart."""

    def __init__(self, client: PartnerClient, labels: Labels, clock: Callable[[], datetime], run: str) -> None:
        self.client = client
        self._labels = labels
        self._clock = clock
        self._run = run
        self._contract: str | None = None
        self._known: list[str] = []

    async def prepare(self, plan: Plan) -> Prepared:
        """Questionnaire and pre-analytics, each for the whole basket at once."""
        questionnaire = await self.client.questionnaire(plan.basket.as_json())
        answer = await self.client.preanalytics(plan.basket.as_json(transport=False))
        return Prepared(questionnaire, tuple(answer["specimens"]))

    async def patient(self, plan: Plan) -> str:
        """The reference to the plan's patient: created now, or one of those that were created before."""
        luck = chance(plan.seed, "patient")
        if plan.patient == "reused" and self._known:
            return luck.choice(self._known)
        make = anonymous_patient if plan.patient == "anonymous" else named_patient
        created = await self.client.create_patient(make(self.client.account, luck, self._clock().date()))
        reference = f"patient/{created['id']}"
        if plan.patient != "anonymous":
            self._known.append(reference)
        return reference

    async def bundle(self, plan: Plan, prepared: Prepared) -> Json:
        """The order bundle, not sent yet."""
        draft = Draft(
            account=self.client.account,
            plan=plan,
            requisition=f"{self._run}-{plan.seed.replace('/', '-')}",
            patient=await self.patient(plan),
            contract=await self._contract_id() if plan.contract_link != "identifier" else None,
            specimens=prepared.specimens,
            answers=answered(prepared.questionnaire, chance(plan.seed, "answers")),
            ordered_at=self._clock(),
        )
        return order_bundle(draft, self._labels, chance(plan.seed, "bundle"))

    async def send(self, bundle: Json) -> PlacedOrder:
        """Creates the order with one bundle request."""
        created = await self.client.create_order(bundle)
        return placed_order(created, self.client.account.lab_system("labels"))

    async def place(self, plan: Plan, change: Change | None = None) -> PlacedOrder:
        """All of it: prepare, create or reuse the patient, send."""
        bundle = await self.bundle(plan, await self.prepare(plan))
        return await self.send(change(bundle) if change else bundle)

    async def _contract_id(self) -> str:
        if self._contract is None:
            self._contract = await self.client.contract_id()
        return self._contract
