"""Orders of the independent partner driver, assessed: every valid one is accepted without a warning.

The driver reads the interface for itself, so a rule that asks for more than the interface says is found here.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest

from lab_agent.catalogue.basket import read_basket
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.nomenclature import nomenclature
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.questionnaire import build_questionnaire
from lab_agent.shared import exact_json
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import answer_questionnaire
from lab_sandbox.partner.order_bundle import LabelSequence, OrderContent, anonymous_patient, build_order_bundle, named_patient
from lab_sandbox.partner.order_generator import OrderPlan, generate_plans
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.proof import FIGURES, SHARE
from tests.unit.fhir.sample import Change
from tests.unit.rules.sample import CATALOGUE, judge

ORDERED = datetime(2026, 3, 2, 12, tzinfo=timezone(timedelta(hours=3)))
ACCOUNT = PartnerAccount(
    base_url="https://exchange.example/api/",
    auth_url="https://auth.example",
    login="clinic",
    password="x",
    client_id="c",
    client_secret="s",
    redirect_uri="http://127.0.0.1/",
    guid="clinic-guid",
    laboratory="lab-guid",
    contract="C-100",
    lab_codes_url="https://lab.example/codes",
    second_labels_system="https://lab.example/second-labels",
)


def _saved(bundle: dict[str, Any], patient: dict[str, Any]) -> dict[str, Any]:
    """The bundle as the service keeps it: local addresses replaced by ids, the partner the owner."""
    text = exact_json.dumps(bundle).decode()
    ids = {entry["fullUrl"]: (entry["resource"]["resourceType"], str(n)) for n, entry in enumerate(bundle["entry"])}
    for address, (kind, number) in ids.items():
        text = text.replace(address, f"{kind.lower()}/{number}")
    saved = [entry["resource"] for entry in exact_json.loads(text)["entry"]]
    resources = list(zip(ids.values(), saved, strict=True))
    for (_, number), body in resources:
        body["id"] = number
        body["meta"]["security"].append({"system": "https://exchange.example/api/security/owner", "code": "clinic-guid"})
    tasks = [body for (kind, _), body in resources if kind == "Task"]
    kept = {f"{kind}/{number}": body for (kind, number), body in resources if kind in {"ProcedureRequest", "Specimen"}}
    return {
        "base_url": ACCOUNT.base_url,
        "order_task": next(task for task in tasks if "partOf" not in task),
        "line_tasks": [task for task in tasks if "partOf" in task],
        "resources": {**kept, "Patient/p1": patient},
        "questionnaire_responses": [body for (kind, _), body in resources if kind == "QuestionnaireResponse"],
    }


def partner_order(plan: OrderPlan, catalogue: Catalogue, labels: LabelSequence) -> Change:
    """What the partner makes of our answers to its basket, in place of the sample."""
    basket = read_basket(plan.basket.as_json(transport=False), catalogue.contracts, 50)
    answer = calculate(catalogue, basket.lines)
    specimens = exact_json.loads(exact_json.dumps(answer.as_json([None] * len(answer.tubes))))["specimens"]
    questionnaire = build_questionnaire(catalogue, [line.item for line in basket.lines]).as_json()
    draft = OrderContent(
        account=ACCOUNT,
        plan=plan,
        requisition=plan.seed,
        patient="patient/p1",
        contract="c1",
        specimens=specimens,
        answers=answer_questionnaire(questionnaire, seeded_random(plan.seed, "answers")),
        ordered_at=ORDERED,
    )
    make = anonymous_patient if plan.patient == "anonymous" else named_patient
    patient = make(ACCOUNT, seeded_random(plan.seed, "patient"), ORDERED.date())
    order = _saved(build_order_bundle(draft, labels, seeded_random(plan.seed, "bundle")), patient)
    return lambda wire: wire.update(order)


def assess_plans(seed: int | str, count: int) -> None:
    items, labels = exact_json.loads(exact_json.dumps(nomenclature(CATALOGUE.contract("C-100")))), LabelSequence()
    for plan in islice(generate_plans("C-100", items, seed), count):
        judgement = judge(partner_order(plan, CATALOGUE, labels))
        assert [finding.message for finding in judgement.findings()] == [], plan.seed
        assert judgement.accepted_lines


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_every_valid_order_is_accepted_without_findings(seed: int) -> None:
    assess_plans(seed, 100)


@pytest.mark.proof
def test_ten_thousand_valid_orders_accepted_without_findings() -> None:
    assess_plans("proof", int(10_000 * SHARE))
    FIGURES.add(valid_orders=int(10_000 * SHARE), wrongly_judged=0)
