"""The order bundle: everything that the clinic sends in one request, by the tables of the interface document.

One ProcedureRequest and one Task for each test, one order-level Task, one Specimen for each element of the pre-analytics
answer, and the answers to the questionnaire where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from lab_sandbox.partner.account import Account
from lab_sandbox.partner.basket import BasketItem
from lab_sandbox.partner.generator import Plan
from lab_sandbox.partner.labels import Labels
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.sampling import collection_times
from lab_sandbox.partner.seeded import guid


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """All that one bundle is made of.

    `patient` is the reference to a Patient (`patient/<id>`), `contract` the id of the Contract (only for links by reference),
    `specimens` the elements of the pre-analytics answer, `answers` the items of the QuestionnaireResponse.
    """

    account: Account
    plan: Plan
    requisition: str
    patient: str
    contract: str | None
    specimens: Sequence[Json]
    answers: Sequence[Json]
    ordered_at: datetime


@dataclass(frozen=True, slots=True)
class _Line:
    """One test of the order, with the basket items that it stands for and its local address."""

    item: str
    caption: str
    guids: frozenset[str]
    address: str


@dataclass(slots=True)
class _Entries:
    """The bundle's entries, each under a local address."""

    luck: Random
    listed: list[Json] = field(default_factory=list)

    def address(self) -> str:
        return f"urn:uuid:{guid(self.luck)}"

    def add(self, resource: Json, address: str | None = None) -> str:
        address = address or self.address()
        self.listed.append({"fullUrl": address, "resource": resource})
        return address


def order_bundle(draft: Draft, labels: Labels, luck: Random) -> Json:
    """The Bundle of the order, barcodes from `labels`, local addresses from `luck`."""
    entries = _Entries(luck)
    lines = _lines(draft.plan, entries)
    tubes = _add_specimens(draft, lines, labels, entries)
    for number, line in enumerate(lines, 1):
        entries.add(_procedure_request(draft, line, number, tubes), line.address)
    order_task = entries.add(_order_task(draft))
    for line in lines:
        entries.add(_line_task(draft, line, order_task))
    if draft.answers:
        entries.add(_questionnaire_response(draft, lines[0]))
    return {"resourceType": "Bundle", "type": "collection", "entry": entries.listed}


def _lines(plan: Plan, entries: _Entries) -> list[_Line]:
    groups: list[list[BasketItem]] = []
    for item in plan.basket.items:
        together = plan.one_line_for_several and item.several
        same = next((group for group in groups if together and group[0].id == item.id), None)
        if same is None:
            groups.append([item])
        else:
            same.append(item)
    return [_Line(group[0].id, group[0].caption, frozenset(one.guid for one in group), entries.address()) for group in groups]


def _add_specimens(draft: Draft, lines: Sequence[_Line], labels: Labels, entries: _Entries) -> list[tuple[str, frozenset[str]]]:
    tubes = []
    for one, at in zip(draft.specimens, collection_times(draft.specimens, draft.ordered_at), strict=True):
        guids = frozenset(one["guids"])
        studies = [line.item for line in lines if line.guids & guids]
        tubes.append((entries.add(_specimen(draft, one, at, _barcodes(draft.account, one, studies, labels))), guids))
    return tubes


def _barcodes(account: Account, one: Json, studies: Sequence[str], labels: Labels) -> list[Json]:
    first = {"system": account.lab_system("labels"), "value": one.get("label") or labels.next()}
    return [first, *({"system": account.second_labels_system, "value": each} for each in labels.seconds(studies))]


def _specimen(draft: Draft, one: Json, at: datetime, barcodes: list[Json]) -> Json:
    account = draft.account
    container: Json = {"identifier": barcodes}
    if one.get("container"):
        coding = {"system": account.service_system("specimen_type"), "code": one["container"][0]["type"]}
        container["type"] = {"coding": [coding]}
    container["specimenQuantity"] = {"value": one["collection"]["quantity"]}
    method = {"system": account.service_system("treatment_protocol"), "code": one["collection"]["method"]}
    return {
        "resourceType": "Specimen",
        "meta": account.rights("read"),
        "type": {"coding": [{"system": account.service_system("specimen-type"), "code": str(one["code"])}]},
        "subject": {"reference": draft.patient},
        "collection": {"collectedDateTime": at.isoformat(timespec="seconds"), "method": {"coding": [method]}},
        "container": [container],
        "extension": [{"url": f"{account.base_url}extra/supportingInfo", "valueString": one["supportingInfo"]}],
    }


def _procedure_request(draft: Draft, line: _Line, number: int, tubes: Sequence[tuple[str, frozenset[str]]]) -> Json:
    account, plan = draft.account, draft.plan
    coding = {"system": account.service_system("nomenclature"), "code": line.item}
    request: Json = {
        "resourceType": "ProcedureRequest",
        "meta": account.rights("read"),
        "identifier": [{"system": account.own_system("lines"), "value": f"{draft.requisition}-{number}"}],
        "requisition": {"system": account.own_system("requisitions"), "value": draft.requisition},
        "supportingInfo": [_contract_link(draft)],
        "status": "active",
        "code": {"coding": [coding], "text": line.caption},
        "subject": {"reference": draft.patient},
        "occurrenceDateTime": draft.ordered_at.isoformat(timespec="seconds"),
        "specimen": [{"reference": address} for address, guids in tubes if guids & line.guids],
    }
    if plan.notes and number == 1:
        request["note"] = [{"text": text} for text in plan.notes]
    if plan.old_order_number:
        request["basedOn"] = [{"identifier": {"system": account.lab_system("mis"), "value": plan.old_order_number}}]
    return request


def _contract_link(draft: Draft) -> Json:
    account, kind = draft.account, draft.plan.contract_link
    if kind == "identifier" or draft.contract is None:
        return {"identifier": {"system": account.lab_system("contract"), "value": account.contract}}
    return {"reference": f"{account.base_url if kind == 'absolute' else ''}contract/{draft.contract}"}


def _order_task(draft: Draft) -> Json:
    account = draft.account
    coding = {"system": account.service_system("task_type"), "code": "OrderProcessingTask"}
    task: Json = {
        "resourceType": "Task",
        "meta": account.rights("read", "updatebody"),
        "status": "requested",
        "code": {"coding": [coding]},
    }
    channel = account.lab_system("notification")
    options = [
        {"type": {"coding": [{"system": channel, "code": name}]}, "valueBoolean": wanted} for name, wanted in draft.plan.notify
    ]
    return {**task, "input": options} if options else task


def _line_task(draft: Draft, line: _Line, order_task: str) -> Json:
    return {
        "resourceType": "Task",
        "meta": draft.account.rights("read", "updatebody"),
        "status": "requested",
        "basedOn": [{"reference": line.address}],
        "partOf": [{"reference": order_task}],
    }


def _questionnaire_response(draft: Draft, line: _Line) -> Json:
    return {
        "resourceType": "QuestionnaireResponse",
        "meta": draft.account.rights("read"),
        "status": "completed",
        "source": {"reference": draft.patient},
        "subject": {"reference": line.address},
        "item": list(draft.answers),
    }
