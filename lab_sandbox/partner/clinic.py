"""Places a clinic's orders: from a plan to an accepted order with its server ids (interface: Daily flow, points 3 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from lab_sandbox.partner.basket import answer_questionnaire
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.errors import Json, PartnerError
from lab_sandbox.partner.order_bundle import LabelSequence, OrderContent, anonymous_patient, build_order_bundle, named_patient
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random

BundleChange = Callable[[Json], Json]
"""A change made to a bundle before it is sent, to test errors."""


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """One test: its nomenclature code, the clinic's line number, and the ids of its ProcedureRequest and Task."""

    item: str
    number: str
    procedure_request: str
    task: str


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An accepted order: the requisition, the id of its order-level Task, its lines, the patient, the barcodes of its tubes."""

    requisition: str
    order_task: str
    lines: tuple[PlacedLine, ...]
    patient: str
    barcodes: tuple[str, ...]


def parse_placed_order(bundle: Json, labels_system: str) -> PlacedOrder:
    """Reads the service's response; its entries may be in any order."""
    resources = [entry["resource"] for entry in bundle.get("entry", ())]
    requests = {one["id"]: one for one in resources if one["resourceType"] == "ProcedureRequest"}
    tasks = [one for one in resources if one["resourceType"] == "Task"]
    order = [one["id"] for one in tasks if not one.get("partOf")]
    if len(order) != 1 or not requests:
        raise PartnerError(f"the created order has {len(order)} order-level Tasks and {len(requests)} ProcedureRequests")
    first = next(iter(requests.values()))
    return PlacedOrder(
        requisition=first["requisition"]["value"],
        order_task=order[0],
        lines=tuple(_placed_lines(tasks, requests)),
        patient=first["subject"].get("reference", ""),
        barcodes=tuple(_specimen_barcodes(resources, labels_system)),
    )


def reference_id(reference: str) -> str:
    """The id in a reference of any spelling, with or without a history suffix."""
    return reference.split("/_history/", maxsplit=1)[0].rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class PreparedBasket:
    """The questionnaire of a basket, and the specimens from its pre-analytics."""

    questionnaire: Json
    specimens: tuple[Json, ...]


class Clinic:
    """Places the orders of one partner. `clock` gives a time with UTC offset; `run_id` makes requisitions unique between runs."""

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
        preanalytics = await self.client.preanalytics(plan.basket.as_json(transport=False))
        return PreparedBasket(questionnaire, tuple(preanalytics["specimens"]))

    async def create_or_reuse_patient(self, plan: OrderPlan) -> str:
        """The reference to the plan's patient, created now or earlier."""
        rng = seeded_random(plan.seed, "patient")
        if plan.patient == "reused" and self._known_patients:
            return rng.choice(self._known_patients)
        make = anonymous_patient if plan.patient == "anonymous" else named_patient
        created = await self.client.create_patient(make(self.client.account, rng, self._clock().date()))
        reference = self.client.account.reference("Patient", created["id"])
        if plan.patient != "anonymous":
            self._known_patients.append(reference)
        return reference

    async def build_bundle(self, plan: OrderPlan, prepared: PreparedBasket) -> Json:
        """The order bundle, ready to send."""
        content = OrderContent(
            account=self.client.account,
            plan=plan,
            requisition=f"{self._run_id}-{plan.seed.replace('/', '-')}",
            patient=await self.create_or_reuse_patient(plan),
            contract=await self._contract_id() if plan.contract_link != "identifier" else None,
            specimens=prepared.specimens,
            answers=answer_questionnaire(prepared.questionnaire, seeded_random(plan.seed, "answers")),
            ordered_at=self._clock(),
        )
        return build_order_bundle(content, self._labels, seeded_random(plan.seed, "bundle"))

    async def send_bundle(self, bundle: Json) -> PlacedOrder:
        """Creates the order with one bundle request."""
        created = await self.client.create_order(bundle)
        return parse_placed_order(created, self.client.account.lab_system("labels"))

    async def place_order(self, plan: OrderPlan, change: BundleChange | None = None) -> PlacedOrder:
        """Prepares the basket, creates or reuses the patient, and sends the bundle."""
        bundle = await self.build_bundle(plan, await self.prepare_basket(plan))
        return await self.send_bundle(change(bundle) if change else bundle)

    async def _contract_id(self) -> str:
        if self._cached_contract_id is None:
            self._cached_contract_id = await self.client.contract_id()
        return self._cached_contract_id


def _placed_lines(tasks: Iterable[Json], requests: dict[str, Json]) -> Iterable[PlacedLine]:
    for task in tasks:
        for based_on in task.get("basedOn", ()):
            request = requests[reference_id(based_on["reference"])]
            item, number = request["code"]["coding"][0]["code"], request["identifier"][0]["value"]
            yield PlacedLine(item, number, request["id"], task["id"])


def _specimen_barcodes(resources: Iterable[Json], labels_system: str) -> Iterable[str]:
    for one in resources:
        if one["resourceType"] == "Specimen":
            for container in one.get("container", ()):
                yield from (each["value"] for each in container["identifier"] if each["system"] == labels_system)
