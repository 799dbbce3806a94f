"""The order bundle: everything that the clinic sends in one request, by the tables of the interface document.

One ProcedureRequest and one Task for each test, one order-level Task, one Specimen for each element of the pre-analytics
answer, and the answers to the questionnaire where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import BasketItem
from lab_sandbox.partner.generator import OrderPlan
from lab_sandbox.partner.labels import LabelSequence
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.sampling import collection_times
from lab_sandbox.partner.seeded import random_guid


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderContent:
    """All that one bundle is made of.

    `patient` is the reference to a Patient (`patient/<id>`), `contract` the id of the Contract (only for links by reference),
    `specimens` the elements of the pre-analytics answer, `answers` the items of the QuestionnaireResponse.
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
    """One test of the order, with the basket items that it stands for and its local address."""

    item: str
    caption: str
    guids: frozenset[str]
    full_url: str


@dataclass(slots=True)
class _BundleEntries:
    """The bundle's entries, each under a local address."""

    rng: Random
    entries: list[Json] = field(default_factory=list)

    def new_full_url(self) -> str:
        return f"urn:uuid:{random_guid(self.rng)}"

    def add(self, resource: Json, full_url: str | None = None) -> str:
        full_url = full_url or self.new_full_url()
        self.entries.append({"fullUrl": full_url, "resource": resource})
        return full_url


def build_order_bundle(content: OrderContent, labels: LabelSequence, rng: Random) -> Json:
    """The Bundle of the order, barcodes from `labels`, local addresses from `luck`."""
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
        tubes.append(
            (entries.add(_specimen(content, one, at, _container_identifiers(content.account, one, studies, labels))), guids)
        )
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
    return {"reference": f"{account.base_url if kind == 'absolute' else ''}contract/{content.contract}"}


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
        {"type": {"coding": [{"system": channel, "code": name}]}, "valueBoolean": wanted} for name, wanted in content.plan.notify
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
