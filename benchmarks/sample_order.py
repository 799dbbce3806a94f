"""An order of five lines and three tubes with answers, as the service shows it; the stub service serves any number of copies.

The order is made by the sandbox's partner and taken from the sandbox itself, so that it is what the interface says. In its ids,
barcodes and requisition the word `ORDER_MARK` stands for eight digits, the number of the copy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.workspace import CATALOGUE, CODES, CONTRACT, SECOND_LABELS
from lab_agent.catalogue.basket import read_basket
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.nomenclature import nomenclature
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.questionnaire import build_questionnaire
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.shared import exact_json
from lab_sandbox import updates
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import Basket, answer_questionnaire, choose_item
from lab_sandbox.partner.order_bundle import LabelSequence, OrderContent, build_order_bundle, named_patient
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from lab_sandbox.service import Service

ORDER_MARK = "ORDERNUM"
"""As long as an order's number, so that copies have the length of the original."""
ITEMS = ("001.001", "002.002", "002.003", "003.001", "004.001")
"""Blood count, two enzymes and a hormone from one serum tube, and a coagulation test, which asks about anticoagulants."""
TUBES = 3
_SEED = "benchmark"


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """The resources of the order by `<type in lower case>/<id>`, as JSON, and the ids that the service's searches find."""

    resources: Mapping[str, bytes]
    order_task: str
    line_tasks: tuple[str, ...]
    contract: bytes
    responses_about: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Questionnaire responses by the ProcedureRequest that they are about."""

    def ids(self, kind: str) -> tuple[str, ...]:
        """The references of one type, such as `specimen`."""
        return tuple(name for name in self.resources if name.startswith(f"{kind}/"))


def build_sample_order(base_url: str) -> SampleOrder:
    """Place the order at a sandbox whose address is `base_url`, and take what it keeps."""
    config = SandboxConfig(base_url=base_url)
    service: Service = create_app(config).state.service
    clinic = next(each for each in config.counterparties if each.guid == CLINIC_GUID)
    account = _account(base_url)
    now = datetime.now(UTC)
    patient = updates.create(service, "Patient", named_patient(account, seeded_random(_SEED, "patient"), now.date()), clinic)
    stored = service.orders.create(_bundle(account, f"patient/{patient.ref.id}", config, now), clinic)
    contract = next(each for each in config.contracts if each.code == CONTRACT)
    found = {each.ref.key(): each.body.decode() for each in (patient, *stored)}
    return _with_marks(found, _contract_resource(contract.resource_id(), config))


def _bundle(account: PartnerAccount, patient: str, config: SandboxConfig, now: datetime) -> dict[str, Any]:
    catalogue = load_catalogue(CATALOGUE)
    plan = _plan(catalogue)
    basket = read_basket(plan.basket.as_json(transport=False), catalogue.contracts, len(ITEMS))
    answer = calculate(catalogue, basket.lines)
    tubes = exact_json.loads(exact_json.dumps(answer.as_json([None] * len(answer.tubes))))["specimens"]
    if len(tubes) != TUBES:
        raise ValueError(f"the order has {len(tubes)} tubes: the catalogue has changed, choose other items")
    questions = build_questionnaire(catalogue, [line.item for line in basket.lines]).as_json()
    content = OrderContent(
        account=account,
        plan=plan,
        requisition=f"order-{ORDER_MARK}",
        patient=patient,
        contract=next(each for each in config.contracts if each.code == CONTRACT).resource_id(),
        specimens=tubes,
        answers=answer_questionnaire(questions, seeded_random(_SEED, "answers")),
        ordered_at=now - timedelta(minutes=5),
    )
    return build_order_bundle(content, _MarkedLabels(), seeded_random(_SEED, "bundle"))


def _plan(catalogue: Catalogue) -> OrderPlan:
    items = exact_json.loads(exact_json.dumps(nomenclature(catalogue.contract(CONTRACT))))
    by_code = {item["id"]: item for item in items}
    rng = seeded_random(_SEED, "items")
    chosen = tuple(choose_item(by_code[code], rng, option=by_code[code]["specimen"][0]) for code in ITEMS)
    return OrderPlan(seed=_SEED, basket=Basket(CONTRACT, chosen))


class _MarkedLabels(LabelSequence):
    """Barcodes that are different in each copy."""

    def next_label(self) -> str:
        return f"{ORDER_MARK}{super().next_label()[-2:]}"


def _account(base_url: str) -> PartnerAccount:
    return PartnerAccount(
        base_url=base_url,
        auth_url=base_url.rstrip("/"),
        login="clinic",
        password="unused",  # noqa: S106 - nobody signs in with it
        client_id="clinic-app",
        client_secret="unused",  # noqa: S106 - nobody signs in with it
        redirect_uri="http://127.0.0.1:1/",
        guid=CLINIC_GUID,
        laboratory=LABORATORY_GUID,
        contract=CONTRACT,
        lab_codes_url=CODES,
        second_labels_system=SECOND_LABELS,
    )


def _contract_resource(contract: str, config: SandboxConfig) -> bytes:
    identifier = {"system": config.lab_system("contract"), "value": CONTRACT}
    return json.dumps(
        {"resourceType": "Contract", "id": contract, "meta": {"versionId": "1"}, "identifier": [identifier]}
    ).encode()


def _with_marks(found: Mapping[str, str], contract: bytes) -> SampleOrder:
    """Give every resource an id with the mark in it."""
    ids = {key.partition("/")[2]: f"{ORDER_MARK}-{key[0]}{number}" for number, key in enumerate(found)}

    def mark(text: str) -> str:
        for old, new in ids.items():
            text = text.replace(old, new)
        return text

    resources = {mark(key): mark(body).encode() for key, body in found.items()}
    parsed = {key: json.loads(body) for key, body in resources.items()}
    tasks = {key: body for key, body in parsed.items() if key.startswith("task/")}
    return SampleOrder(
        resources=resources,
        order_task=next(key for key, body in tasks.items() if "partOf" not in body),
        line_tasks=tuple(key for key, body in tasks.items() if "partOf" in body),
        contract=contract,
        responses_about=_responses_about(parsed),
    )


def _responses_about(parsed: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {key: () for key in parsed if key.startswith("procedurerequest/")}
    for key, body in parsed.items():
        if key.startswith("questionnaireresponse/"):
            found[body["subject"]["reference"]] += (key,)
    return found
