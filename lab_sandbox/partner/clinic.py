"""The clinic at work: from a plan to an order that the service has accepted (interface: Daily flow, points 3 to 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lab_sandbox.partner.answers import answer_questionnaire
from lab_sandbox.partner.bundle import OrderContent, build_order_bundle
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.generator import OrderPlan
from lab_sandbox.partner.labels import LabelSequence
from lab_sandbox.partner.patients import anonymous_patient, named_patient
from lab_sandbox.partner.placed import PlacedOrder, parse_placed_order
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.seeded import seeded_random

BundleChange = Callable[[Json], Json]
"""What is done to a finished bundle before it is sent: tests make one thing wrong with it."""


@dataclass(frozen=True, slots=True)
class PreparedBasket:
    """What the laboratory asks for a basket: its questionnaire and the elements of its pre-analytics answer."""

    questionnaire: Json
    specimens: tuple[Json, ...]


class Clinic:
    """Places orders of one partner. `clock` gives the time with its offset, `run` keeps requisitions of several runs apart."""

    def __init__(self, client: PartnerClient, labels: LabelSequence, clock: Callable[[], datetime], run_id: str) -> None:
        self.client = client
        self._labels = labels
        self._clock = clock
        self._run_id = run_id
        self._cached_contract_id: str | None = None
        self._known_patients: list[str] = []

    async def prepare_basket(self, plan: OrderPlan) -> PreparedBasket:
        """Questionnaire and pre-analytics, each for the whole basket at once."""
        questionnaire = await self.client.questionnaire(plan.basket.as_json())
        answer = await self.client.preanalytics(plan.basket.as_json(transport=False))
        return PreparedBasket(questionnaire, tuple(answer["specimens"]))

    async def create_or_reuse_patient(self, plan: OrderPlan) -> str:
        """The reference to the plan's patient: created now, or one of those that were created before."""
        luck = seeded_random(plan.seed, "patient")
        if plan.patient == "reused" and self._known_patients:
            return luck.choice(self._known_patients)
        make = anonymous_patient if plan.patient == "anonymous" else named_patient
        created = await self.client.create_patient(make(self.client.account, luck, self._clock().date()))
        reference = f"patient/{created['id']}"
        if plan.patient != "anonymous":
            self._known_patients.append(reference)
        return reference

    async def build_bundle(self, plan: OrderPlan, prepared: PreparedBasket) -> Json:
        """The order bundle, not sent yet."""
        draft = OrderContent(
            account=self.client.account,
            plan=plan,
            requisition=f"{self._run_id}-{plan.seed.replace('/', '-')}",
            patient=await self.create_or_reuse_patient(plan),
            contract=await self._contract_id() if plan.contract_link != "identifier" else None,
            specimens=prepared.specimens,
            answers=answer_questionnaire(prepared.questionnaire, seeded_random(plan.seed, "answers")),
            ordered_at=self._clock(),
        )
        return build_order_bundle(draft, self._labels, seeded_random(plan.seed, "bundle"))

    async def send_bundle(self, bundle: Json) -> PlacedOrder:
        """Creates the order with one bundle request."""
        created = await self.client.create_order(bundle)
        return parse_placed_order(created, self.client.account.lab_system("labels"))

    async def place_order(self, plan: OrderPlan, change: BundleChange | None = None) -> PlacedOrder:
        """All of it: prepare, create or reuse the patient, send."""
        bundle = await self.build_bundle(plan, await self.prepare_basket(plan))
        return await self.send_bundle(change(bundle) if change else bundle)

    async def _contract_id(self) -> str:
        if self._cached_contract_id is None:
            self._cached_contract_id = await self.client.contract_id()
        return self._cached_contract_id
