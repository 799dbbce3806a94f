"""Made-up orders of what the catalogue offers, as the resources that a clinic would send (interface: Create order).

They follow our own answers: the tubes of pre-analytics, the labels of the pools, the questions of the questionnaire. So whatever
is wrong with one of them is wrong with the installation, not with the clinic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

from lab_agent.catalogue.basket import Basket, BasketLine
from lab_agent.catalogue.labels import LabelSource, TubeLabels, old_order_pattern, second_label_patterns
from lab_agent.catalogue.model import Catalogue, Contract, Item, QuestionType, Requirement
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.questionnaire import QuestionNode, build_questionnaire
from lab_agent.catalogue.tubes import Tube
from lab_agent.catalogue.turnaround import Stopped, most_severe_notice
from lab_agent.exchange.service import Json
from lab_agent.shared import exact_json
from lab_agent.shared.code_systems import CodeSystem, CodeSystems
from lab_agent.shared.label_pools import IdentifierPattern

_MOST_TESTS = 6
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_DRAWS = 1_000
"""How often a second barcode is drawn anew where another order has it."""
_CLINIC = "00000000-0000-4000-8000-000000000001"
"""The guid of a clinic, where the settings name none for the contract."""
_REQUISITIONS, _LINE_NUMBERS = "https://clinic.invalid/requisitions", "https://clinic.invalid/lines"
_LAST_SAMPLE_AGE = timedelta(minutes=10)
_NAMES = (
    ("Lindqvist", "Åsa", "Märta"),
    ("O'Hara-Whitfield", "Seán", "Conor"),
    ("Müller-Großmann", "Jürgen", "Karl"),
    ("Петренко", "Оксана", "Игоревна"),
    ("Papadopoulou", "Ελένη", "-"),
    ("Nguyen", "Thị Thuý", "An"),
    ("Şen", "Çağla", "İpek"),
    ("Lee", "Bo", "K."),
    ("Wolfeschlegelsteinhausenbergerdorff-Fitzgerald", "Maximiliana Konstantia", "Theodora Wilhelmine"),
)
"""Invented patients whose names systems fail at: other scripts, long ones, an apostrophe."""
_ANSWERS = ("none", "since last week", "Aspirin 100 mg | evenings & nights", "«Ω-3», 2 × 1 g")


@dataclass(frozen=True, slots=True)
class OrderUnit:
    """What at least one order is made of: an item of a contract, with one of its biomaterials (None where there is no choice)."""

    contract: Contract
    item: Item
    choice: Requirement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOrder:
    """An order: its resources with their ids, the order-level Task first. `items` are the codes of its tests."""

    contract: str
    items: tuple[str, ...]
    resources: tuple[Json, ...]

    @property
    def task_id(self) -> str:
        """The id of its order-level Task."""
        return str(self.resources[0]["id"])


def list_units(catalogue: Catalogue, contracts: Sequence[str], now: datetime) -> tuple[list[OrderUnit], list[str]]:
    """What can be ordered under these contracts now; and the codes of the items that are stopped."""
    units: list[OrderUnit] = []
    stopped: dict[str, None] = {}
    for contract in (catalogue.contracts[code] for code in contracts if code in catalogue.contracts):
        for item in contract.items.values():
            notice = most_severe_notice(contract.code, item.id, catalogue.notices, now)
            if notice is not None and isinstance(notice.status, Stopped):
                stopped[item.id] = None
                continue
            units += [OrderUnit(contract, item, choice) for choice in item.options or (None,)]
    return units, list(stopped)


def plan_baskets(units: Sequence[OrderUnit], count: int, rng: Random) -> Iterator[list[OrderUnit]]:
    """Give `count` baskets: every unit once, as far as the orders reach, and then any of them.

    A basket is of one contract, and has no item twice. A follow-up study is ordered alone (interface: Create order, rule 4).
    """
    waiting = rng.sample(units, len(units))
    for _ in range(count):
        first = waiting.pop() if waiting else rng.choice(units)
        basket = [first]
        size = 1 if old_order_pattern(first.item) else rng.randint(1, _MOST_TESTS)
        pool = waiting or rng.sample(units, min(len(units), 3 * _MOST_TESTS))
        for unit in [each for each in reversed(pool) if each.contract is first.contract]:
            if len(basket) >= size:
                break
            if unit.item.id not in {each.item.id for each in basket} and old_order_pattern(unit.item) is None:
                basket.append(unit)
                if unit in waiting:
                    waiting.remove(unit)
        yield basket


@dataclass(slots=True)
class OrderMaker:
    """Makes orders. `laboratory` is our own guid; `counterparties` are the clinics' by contract; `labels` gives the barcodes."""

    catalogue: Catalogue
    systems: CodeSystems
    laboratory: str
    counterparties: dict[str, str | None]
    labels: LabelSource
    rng: Random
    labels_issued: int = 0
    _made: int = 0
    _own_labels: int = 0
    _second_labels: set[str] = field(default_factory=set)

    async def make(self, basket: Sequence[OrderUnit], now: datetime) -> MadeOrder:
        """Make an order of a basket. Raises `PoolEmptyError` where the pools have no labels left, and `StoreError`."""
        self._made += 1
        lines = tuple(
            BasketLine(place, unit.item, (unit.choice,) if unit.choice else (), guid=self._guid())
            for place, unit in enumerate(basket)
        )
        contract = basket[0].contract
        asked = Basket(contract, lines)
        tubes = calculate(self.catalogue, lines).tubes
        labels = await self.labels.labels(asked, tubes, self.catalogue.version)
        self.labels_issued += sum(each.first is not None for each in labels)
        builder = _OrderBuilder(self, asked, f"rehearsal-{self._made}", now)
        resources = builder.build(tubes, labels)
        items = tuple(line.item.id for line in lines)
        return MadeOrder(contract=contract.code, items=items, resources=tuple(map(_as_read, resources)))

    def next_own_label(self) -> str:
        """A barcode as a clinic has it that uses its own."""
        self._own_labels += 1
        return f"{9_000_000_000 + self._own_labels}"

    def next_second_label(self, pattern: IdentifierPattern) -> str:
        """A second barcode of that pattern which no order has yet, while there are any: who prints them sees to that."""
        for _ in range(_DRAWS):
            if (label := self.fill(pattern)) not in self._second_labels:
                break
        self._second_labels.add(label)
        return label

    def fill(self, pattern: IdentifierPattern) -> str:
        """Something that fits the pattern."""
        drawn = {"0": lambda: str(self.rng.randrange(10)), "X": lambda: self.rng.choice(_LETTERS)}
        return "".join(drawn[char]() if char in drawn else char for char in pattern.text)

    def _guid(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True)
class _OrderBuilder:
    """Builds the resources of one order; ids begin with `name`."""

    maker: OrderMaker
    basket: Basket
    name: str
    now: datetime

    def build(self, tubes: Sequence[Tube], labels: Sequence[TubeLabels]) -> list[dict[str, Any]]:
        times = _collection_times(tubes, self.now)
        specimens = [
            self._specimen(number, tube, label, at)
            for number, (tube, label, at) in enumerate(zip(tubes, labels, times, strict=True), 1)
        ]
        lines = self.basket.lines
        questions = build_questionnaire(self.maker.catalogue, [line.item for line in lines]).root
        answers = [self._response(questions)] if questions else []
        requests = [self._request(number, line, tubes) for number, line in enumerate(lines, 1)]
        tasks = [self._line_task(number) for number in range(1, len(lines) + 1)]
        return [self._order_task(), *tasks, *requests, *specimens, *answers, self._patient()]

    def _resource(self, resource_type: str, suffix: str, *rights: str, **fields: Any) -> dict[str, Any]:
        ours = [{"system": self._right(right), "code": self.maker.laboratory} for right in ("read", *rights)]
        owner = self.maker.counterparties.get(self.basket.contract.code) or _CLINIC
        security = [*ours, {"system": self._right("owner"), "code": owner}]
        meta = {"versionId": "1", "security": security}
        return {"resourceType": resource_type, "id": f"{self.name}{suffix}", "meta": meta, **fields}

    def _right(self, name: str) -> str:
        return f"{self.maker.systems.base_url}security/{name}"

    def _order_task(self) -> dict[str, Any]:
        code = _coding(self.maker.systems.task_type, "OrderProcessingTask")
        return self._resource("Task", "", "updatebody", status="requested", code=code)

    def _line_task(self, number: int) -> dict[str, Any]:
        return self._resource(
            "Task",
            f"-task-{number}",
            "updatebody",
            status="requested",
            basedOn=[{"reference": f"procedurerequest/{self.name}-line-{number}"}],
            partOf=[{"reference": f"task/{self.name}"}],
        )

    def _request(self, number: int, line: BasketLine, tubes: Sequence[Tube]) -> dict[str, Any]:
        systems, guids = self.maker.systems, set(line.guids)
        specimens = [place for place, tube in enumerate(tubes, 1) if guids & set(tube.guids)]
        code = _coding(systems.nomenclature, line.item.id)
        request = self._resource(
            "ProcedureRequest",
            f"-line-{number}",
            status="active",
            identifier=[{"system": _LINE_NUMBERS, "value": f"{self.name}-{number}"}],
            requisition={"system": _REQUISITIONS, "value": self.name},
            supportingInfo=[{"identifier": {"system": systems.contract.url, "value": self.basket.contract.code}}],
            code={**code, "text": line.item.caption},
            subject={"reference": f"patient/{self.name}-patient"},
            occurrenceDateTime=_to_text(self.now),
            specimen=[{"reference": f"specimen/{self.name}-specimen-{place}"} for place in specimens],
        )
        if (pattern := old_order_pattern(line.item)) is not None:
            old = {"system": systems.old_orders.url, "value": self.maker.fill(pattern)}
            request["basedOn"] = [{"identifier": old}]
        return request

    def _specimen(self, number: int, tube: Tube, labels: TubeLabels, collected_at: datetime) -> dict[str, Any]:
        systems, kind = self.maker.systems, tube.kind
        second = labels.second or tuple(map(self.maker.next_second_label, second_label_patterns(self.basket, tube)))
        identifiers = [{"system": systems.labels.url, "value": labels.first or self.maker.next_own_label()}]
        if systems.second_labels is not None:
            identifiers += [{"system": systems.second_labels.url, "value": value} for value in second]
        container: dict[str, Any] = {"identifier": identifiers, "specimenQuantity": {"value": tube.quantity}}
        if kind.container is not None:
            container["type"] = _coding(systems.container_type, kind.container.type)
        answer = tube.as_json(labels.first, include_transport=False, second_labels=second)
        return self._resource(
            "Specimen",
            f"-specimen-{number}",
            type=_coding(systems.specimen_type, str(kind.specimen_code)),
            subject={"reference": f"patient/{self.name}-patient"},
            collection={"collectedDateTime": _to_text(collected_at), "method": _coding(systems.method, kind.method)},
            container=[container],
            extension=[{"url": systems.supporting_info.url, "valueString": answer["supportingInfo"]}],
        )

    def _response(self, root: QuestionNode) -> dict[str, Any]:
        return self._resource(
            "QuestionnaireResponse",
            "-answers",
            status="completed",
            source={"reference": f"patient/{self.name}-patient"},
            subject={"reference": f"procedurerequest/{self.name}-line-1"},
            item=[self._answer(root)],
        )

    def _answer(self, node: QuestionNode) -> dict[str, Any]:
        question, rng = node.question, self.maker.rng
        item: dict[str, Any] = {"linkId": question.link_id, "text": question.text}
        if question.type is QuestionType.GROUP:
            return {**item, "item": [self._answer(child) for child in node.children]}
        if question.type is QuestionType.CHOICE and question.options:
            chosen = rng.choice(question.options)
            return {**item, "answer": [{"valueCoding": {"system": chosen.system, "code": chosen.code}}]}
        return {**item, "answer": [{"valueString": rng.choice(_ANSWERS)}]}

    def _patient(self) -> dict[str, Any]:
        rng = self.maker.rng
        family, *given = rng.choice(_NAMES)
        if rng.random() < 0.1:
            family, given = f"{rng.randrange(10**10):010}", ["-", "-"]  # anonymous (interface: Patient)
        born: date = (self.now - timedelta(days=rng.randrange(1, 95 * 365))).date()
        telecom = [{"system": "phone", "value": f"+999{rng.randrange(10**8):08}", "use": "mobile"}]
        return self._resource(
            "Patient",
            "-patient",
            name=[{"family": family, "given": given}],
            telecom=telecom,
            gender=rng.choice(("female", "male")),
            birthDate=born.isoformat(),
        )


def _collection_times(tubes: Sequence[Tube], now: datetime) -> list[datetime]:
    """When each tube was filled: the last one ten minutes ago, those of a tolerance test by their minutes."""
    minutes = [tube.kind.minutes or 0 for tube in tubes]
    start = now - _LAST_SAMPLE_AGE - timedelta(minutes=max(minutes, default=0))
    return [start + timedelta(minutes=each) for each in minutes]


def _coding(system: CodeSystem, code: str) -> dict[str, Any]:
    return {"coding": [{"system": system.url, "code": code}]}


def _to_text(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _as_read(resource: dict[str, Any]) -> Json:
    """The resource as it would be read from the service: numbers are decimals."""
    read: Json = exact_json.loads(exact_json.dumps(resource))
    return read
