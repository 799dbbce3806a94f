"""Orders of the independent partner driver, built once and placed in as many worlds as wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from lab_agent.catalogue.basket import read_basket
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.nomenclature import nomenclature
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.questionnaire import build_questionnaire
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.shared import exact_json
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import Basket, answer_questionnaire, choose_item
from lab_sandbox.partner.order_bundle import LabelSequence, OrderContent, build_order_bundle, named_patient
from lab_sandbox.partner.order_generator import OrderPlan, generate_plans
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.paths import CATALOGUE

BASE = "http://service.test:8480/"
UNKNOWN_ITEM = "999.999"
"""An item that no catalogue has: its line is rejected, and the others of its order are not."""
ACCOUNT = PartnerAccount(
    base_url=BASE,
    auth_url=BASE.rstrip("/"),
    login="clinic",
    password="demo-clinic-password",
    client_id="clinic-app",
    client_secret="demo-clinic-secret",
    redirect_uri="http://127.0.0.1:8484/callback",
    guid=CLINIC_GUID,
    laboratory=LABORATORY_GUID,
    contract="C-100",
    lab_codes_url="http://codes.lab.example",
    second_labels_system="http://codes.lab.example/second-labels",
)


@dataclass(frozen=True)
class OrderTemplate:
    bundle: dict[str, Any]
    patient: dict[str, Any]


@functools.cache
def catalogue() -> Catalogue:
    return load_catalogue(CATALOGUE)


@functools.cache
def templates(ordered_at: datetime, count: int = 24) -> tuple[OrderTemplate, ...]:
    """Orders of one to four lines, each with labels of its own."""
    labels = LabelSequence()
    wanted = (plan for plan in _plans() if 1 <= len(plan.basket.items) <= 4)
    return tuple(_make_template(plan, labels, ordered_at) for plan in islice(wanted, count))


def _offer() -> list[dict[str, Any]]:
    """The nomenclature, as the clinic reads it."""
    return list(exact_json.loads(exact_json.dumps(nomenclature(catalogue().contract("C-100")))))


def _plans() -> Iterator[OrderPlan]:
    return islice(generate_plans("C-100", _offer(), "simulation"), 2000)


def order_template(ordered_at: datetime, *tests: str, barcode: str) -> OrderTemplate:
    """An order of these tests, all of them from one tube with this barcode."""
    known = {each["id"]: each for each in _offer()}
    rng, seed = seeded_random(barcode, *tests), "/".join((barcode, *tests))
    options = {test: next(one for one in known[test]["specimen"] if str(one["specimen_code"]) == "10") for test in tests}
    chosen = tuple(choose_item(known[test], rng, option=option) for test, option in options.items())
    plan = OrderPlan(seed=seed, basket=Basket("C-100", chosen))
    return _make_template(plan, LabelSequence(int(barcode), len(barcode)), ordered_at)


def find_template(ordered_at: datetime, fits: Callable[[OrderPlan], bool]) -> OrderTemplate:
    """The first generated order whose plan is as wanted."""
    return _make_template(next(filter(fits, _plans())), LabelSequence(), ordered_at)


def find_order(ordered_at: datetime, *, lines: int, specimens: int) -> OrderTemplate:
    made = (_make_template(plan, LabelSequence(), ordered_at) for plan in _plans() if len(plan.basket.items) == lines)
    return next(each for each in made if len(resources_of(each.bundle, "Specimen")) == specimens)


def _make_template(plan: OrderPlan, labels: LabelSequence, ordered_at: datetime) -> OrderTemplate:
    basket = read_basket(plan.basket.as_json(transport=False), catalogue().contracts, 50)
    answer = calculate(catalogue(), basket.lines)
    wire = exact_json.loads(exact_json.dumps(answer.as_json([None] * len(answer.tubes))))
    questionnaire = build_questionnaire(catalogue(), [line.item for line in basket.lines]).as_json()
    draft = OrderContent(
        account=ACCOUNT,
        plan=plan,
        requisition=plan.seed,
        patient="patient/PATIENT",
        contract=SandboxConfig().contracts[0].resource_id(),
        specimens=wire["specimens"],
        answers=answer_questionnaire(questionnaire, seeded_random(plan.seed, "answers")),
        ordered_at=ordered_at - timedelta(minutes=5),
    )
    bundle = build_order_bundle(draft, labels, seeded_random(plan.seed, "bundle"))
    return OrderTemplate(bundle, named_patient(ACCOUNT, seeded_random(plan.seed, "patient"), ordered_at.date()))


def procedure_requests(bundle: dict[str, Any]) -> list[dict[str, Any]]:
    return resources_of(bundle, "ProcedureRequest")


def resources_of(bundle: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]
