"""Builds order bundles and Patients from the tables of the interface document.

A bundle has one ProcedureRequest and one Task for each test, one order-level Task, one Specimen with its barcodes and collection
time for each element of the pre-analytics, and the answers to the questionnaire, if any.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import count
from random import Random

from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import BasketItem
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import random_guid

SECOND_LABEL_SHAPES = {"042.036": "0000-0000", "042.075": "0000-0000", "042.076": "000-000-000"}
"""The form of the second barcode for each study that needs one (interface: order rule 3)."""
FAMILY_NAMES = ("Abramova", "Berg", "Castellanos", "D'Arcy", "Ekström", "Иванова", "Nguyễn", "O'Neill", "Şahin", "Zieliński")
"""Invented family names in several scripts."""
_GIVEN_NAMES = ("Alex", "Bo", "Chloé", "Dana", "Ємельян", "Ines", "Max", "Noa", "Robin", "Zoë")
_MIDDLE_NAMES = ("A.", "Maria", "Jan", "Сергеевич", "Lee", "Van")
_MAX_AGE_DAYS = 95 * 365
_DELAY_PATTERN = re.compile(r"(\d+)\s*(h|min)", re.IGNORECASE)
_DEFAULT_INTERVAL_MINUTES = 60
_LAST_SAMPLE_AGE = timedelta(minutes=10)


class LabelSequence:
    """A sequence of unique barcodes; `first` keeps several sequences apart."""

    def __init__(self, first: int = 1, digits: int = 10) -> None:
        self._numbers = count(first)
        self._second_numbers = count(first)
        self._digits = digits

    def next_label(self) -> str:
        """The next barcode: digits only."""
        return f"{next(self._numbers):0{self._digits}d}"

    def second_labels(self, studies: Iterable[str]) -> list[str]:
        """The second barcodes for a tube of these studies: one for each form."""
        shapes = dict.fromkeys(SECOND_LABEL_SHAPES[study] for study in studies if study in SECOND_LABEL_SHAPES)
        return [fill_shape(shape, next(self._second_numbers)) for shape in shapes]


def fill_shape(shape: str, number: int) -> str:
    """The number in the digits of the form: `0000-0000` and 12345 give `0001-2345`."""
    digits = iter(f"{number:0{shape.count('0')}d}"[-shape.count("0") :])
    return "".join(next(digits) if char == "0" else char for char in shape)


def collection_times(specimens: Sequence[Json], ordered_at: datetime) -> list[datetime]:
    """A collection time for each element of the pre-analytics, the last one ten minutes before `ordered_at`.

    Tubes of the same biomaterial and container with different methods may be the samples of a tolerance test, whose times must
    follow their sequence (interface: Specimen). The minutes are in the method text, or else derived from the sequence.
    """
    minutes = _sample_offsets(specimens)
    start = ordered_at - _LAST_SAMPLE_AGE - timedelta(minutes=max(minutes, default=0))
    return [start + timedelta(minutes=offset) for offset in minutes]


def parse_minutes(method: str) -> int:
    """The minutes in a method text (`60 min after the load`, `2 hours after`); 0 if there are none (fasting)."""
    found = _DELAY_PATTERN.search(method)
    if found is None:
        return 0
    return int(found[1]) * (60 if found[2].lower() == "h" else 1)


def _sample_offsets(specimens: Sequence[Json]) -> list[int]:
    methods = [str(one["collection"]["method"]) for one in specimens]
    offsets = [parse_minutes(method) for method in methods]
    for group in _group_by_tube(specimens):
        if not any(offsets[index] for index in group):
            sequence = list(dict.fromkeys(methods[index] for index in group))
            for index in group:
                offsets[index] = sequence.index(methods[index]) * _DEFAULT_INTERVAL_MINUTES
    return offsets


def _group_by_tube(specimens: Sequence[Json]) -> list[list[int]]:
    groups: dict[tuple[object, object], list[int]] = defaultdict(list)
    for index, one in enumerate(specimens):
        container = one["container"][0].get("type") if one.get("container") else None
        groups[one["code"], container].append(index)
    return list(groups.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderContent:
    """The content of one bundle.

    `patient` is the reference to a Patient (`patient/<id>`), `contract` the id of the Contract (only for links by reference),
    `specimens` the elements of the pre-analytics, `answers` the items of the QuestionnaireResponse.
    """

    account: PartnerAccount
    plan: OrderPlan
    requisition: str
    patient: str
    contract: str | None
    specimens: Sequence[Json]
    answers: Sequence[Json]
    ordered_at: datetime


@dataclass(frozen=True, slots=True)
class _OrderLine:
    """One test of the order, with the guids of its basket items and its local address."""

    item: str
    caption: str
    guids: frozenset[str]
    full_url: str


@dataclass(slots=True)
class _BundleEntries:
    """The bundle's entries, each with a local address."""

    rng: Random
    entries: list[Json] = field(default_factory=list)

    def new_full_url(self) -> str:
        return f"urn:uuid:{random_guid(self.rng)}"

    def add(self, resource: Json, full_url: str | None = None) -> str:
        full_url = full_url or self.new_full_url()
        self.entries.append({"fullUrl": full_url, "resource": resource})
        return full_url


def build_order_bundle(content: OrderContent, labels: LabelSequence, rng: Random) -> Json:
    """The Bundle of the order, with barcodes from `labels` and local addresses from `rng`."""
    entries = _BundleEntries(rng)
    lines = _group_lines(content.plan, entries)
    tubes = _add_specimens(content, lines, labels, entries)
    for number, line in enumerate(lines, 1):
        entries.add(_procedure_request(content, line, number, tubes), line.full_url)
    order_task = entries.add(_order_task(content))
    for line in lines:
        entries.add(_line_task(content, line, order_task))
    if content.answers:
        entries.add(_questionnaire_response(content, lines[0]))
    return {"resourceType": "Bundle", "type": "collection", "entry": entries.entries}


def _group_lines(plan: OrderPlan, entries: _BundleEntries) -> list[_OrderLine]:
    groups: list[list[BasketItem]] = []
    for item in plan.basket.items:
        together = plan.merge_multiple_specimen_lines and item.multiple_specimen
        same = next((group for group in groups if together and group[0].id == item.id), None)
        if same is None:
            groups.append([item])
        else:
            same.append(item)
    return [
        _OrderLine(group[0].id, group[0].caption, frozenset(one.guid for one in group), entries.new_full_url())
        for group in groups
    ]


def _add_specimens(
    content: OrderContent, lines: Sequence[_OrderLine], labels: LabelSequence, entries: _BundleEntries
) -> list[tuple[str, frozenset[str]]]:
    tubes = []
    for one, at in zip(content.specimens, collection_times(content.specimens, content.ordered_at), strict=True):
        guids = frozenset(one["guids"])
        studies = [line.item for line in lines if line.guids & guids]
        barcodes = _container_identifiers(content.account, one, studies, labels)
        tubes.append((entries.add(_specimen(content, one, at, barcodes)), guids))
    return tubes


def _container_identifiers(account: PartnerAccount, specimen: Json, studies: Sequence[str], labels: LabelSequence) -> list[Json]:
    first = {"system": account.lab_system("labels"), "value": specimen.get("label") or labels.next_label()}
    return [first, *({"system": account.second_labels_system, "value": each} for each in labels.second_labels(studies))]


def _specimen(content: OrderContent, specimen: Json, collected_at: datetime, barcodes: list[Json]) -> Json:
    account = content.account
    container: Json = {"identifier": barcodes}
    if specimen.get("container"):
        coding = {"system": account.service_system("specimen_type"), "code": specimen["container"][0]["type"]}
        container["type"] = {"coding": [coding]}
    container["specimenQuantity"] = {"value": specimen["collection"]["quantity"]}
    method = {"system": account.service_system("treatment_protocol"), "code": specimen["collection"]["method"]}
    return {
        "resourceType": "Specimen",
        "meta": account.security_meta("read"),
        "type": {"coding": [{"system": account.service_system("specimen-type"), "code": str(specimen["code"])}]},
        "subject": {"reference": content.patient},
        "collection": {"collectedDateTime": collected_at.isoformat(timespec="seconds"), "method": {"coding": [method]}},
        "container": [container],
        "extension": [{"url": f"{account.base_url}extra/supportingInfo", "valueString": specimen["supportingInfo"]}],
    }


def _procedure_request(content: OrderContent, line: _OrderLine, number: int, tubes: Sequence[tuple[str, frozenset[str]]]) -> Json:
    account, plan = content.account, content.plan
    coding = {"system": account.service_system("nomenclature"), "code": line.item}
    request: Json = {
        "resourceType": "ProcedureRequest",
        "meta": account.security_meta("read"),
        "identifier": [{"system": account.own_system("lines"), "value": f"{content.requisition}-{number}"}],
        "requisition": {"system": account.own_system("requisitions"), "value": content.requisition},
        "supportingInfo": [_contract_link(content)],
        "status": "active",
        "code": {"coding": [coding], "text": line.caption},
        "subject": {"reference": content.patient},
        "occurrenceDateTime": content.ordered_at.isoformat(timespec="seconds"),
        "specimen": [{"reference": address} for address, guids in tubes if guids & line.guids],
    }
    if plan.notes and number == 1:
        request["note"] = [{"text": text} for text in plan.notes]
    if plan.old_order_number:
        request["basedOn"] = [{"identifier": {"system": account.lab_system("mis"), "value": plan.old_order_number}}]
    return request


def _contract_link(content: OrderContent) -> Json:
    account, kind = content.account, content.plan.contract_link
    if kind == "identifier" or content.contract is None:
        return {"identifier": {"system": account.lab_system("contract"), "value": account.contract}}
    relative = account.reference("Contract", content.contract)
    return {"reference": f"{account.resource_base}{relative}" if kind == "absolute" else relative}


def _order_task(content: OrderContent) -> Json:
    account = content.account
    coding = {"system": account.service_system("task_type"), "code": "OrderProcessingTask"}
    task: Json = {
        "resourceType": "Task",
        "meta": account.security_meta("read", "updatebody"),
        "status": "requested",
        "code": {"coding": [coding]},
    }
    channel = account.lab_system("notification")
    options = [
        {"type": {"coding": [{"system": channel, "code": name}]}, "valueBoolean": is_wanted}
        for name, is_wanted in content.plan.notify
    ]
    return {**task, "input": options} if options else task


def _line_task(content: OrderContent, line: _OrderLine, order_task: str) -> Json:
    return {
        "resourceType": "Task",
        "meta": content.account.security_meta("read", "updatebody"),
        "status": "requested",
        "basedOn": [{"reference": line.full_url}],
        "partOf": [{"reference": order_task}],
    }


def _questionnaire_response(content: OrderContent, line: _OrderLine) -> Json:
    return {
        "resourceType": "QuestionnaireResponse",
        "meta": content.account.security_meta("read"),
        "status": "completed",
        "source": {"reference": content.patient},
        "subject": {"reference": line.full_url},
        "item": list(content.answers),
    }


def named_patient(account: PartnerAccount, rng: Random, today: date) -> Json:
    """A Patient with name, gender, birth date and telecom (interface: Patient, required on creation)."""
    name = {"family": rng.choice(FAMILY_NAMES), "given": [rng.choice(_GIVEN_NAMES), rng.choice(_MIDDLE_NAMES)]}
    number = f"+1555{rng.randrange(10**7):07d}"
    telecom: list[Json] = [{"system": "phone", "value": number, "use": "mobile"}]
    if rng.random() < 0.5:
        telecom.append({"system": "email", "value": f"patient{rng.randrange(10**6)}@mail.example", "use": "home"})
    return _patient(account, rng, today, [name], telecom)


def anonymous_patient(account: PartnerAccount, rng: Random, today: date) -> Json:
    """A Patient in the anonymous form: a family name of exactly 10 digits, both given names the single character `-`."""
    return _patient(account, rng, today, [{"family": f"{rng.randrange(10**10):010d}", "given": ["-", "-"]}], [])


def _patient(account: PartnerAccount, rng: Random, today: date, name: list[Json], telecom: list[Json]) -> Json:
    born = today - timedelta(days=rng.randrange(1, _MAX_AGE_DAYS))
    patient: Json = {
        "resourceType": "Patient",
        "meta": account.security_meta("read"),
        "name": name,
        "gender": rng.choice(("female", "male")),
        "birthDate": born.isoformat(),
    }
    return {**patient, "telecom": telecom} if telecom else patient
