"""References of uploads: spelled as the order spelled its own, which its service took, or as the settings say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab_sandbox import updates
from tests.harness.orders import OrderTemplate
from tests.harness.results import haemoglobin
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, parametrize_first, pick_template

ABSOLUTE = "http://service.test:8480/fhir/Patient/{id}"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)


async def deliver(patient: str, style: str, **settings: str) -> dict[str, dict[str, Any]]:
    """The order of a partner who writes the Patient's reference in this form, and its result; the resources by type."""
    world = World("references", rules={"reference_style": style})
    template = pick_template(world, 1)
    created = updates.create(world.service, "Patient", dict(template.patient), world.clinic).ref.id
    text = json.dumps(template.bundle, default=float).replace("patient/PATIENT", patient.format(id=created))
    task = world.place_order(OrderTemplate(bundle=json.loads(text), patient=template.patient), patient=created)
    scenario = Scenario(world, world.agent(), task)
    scenario.restart("exchange", **settings)
    await scenario.process_all()
    specimen = world.lis.submitted[0].specimens[0].id
    await scenario.receive(scenario.report(observations=(haemoglobin("13.2", specimen=specimen),)))
    assert scenario.status() == "completed"
    kinds = ("ProcedureRequest", "Observation", "DiagnosticReport")
    found = {kind: world.service.store.find(kind, [], lambda _: True, limit=5)[0] for kind in kinds}
    return {"Task": world.line_tasks(task)[0], **{kind: json.loads(one.body) for kind, one in found.items()}}


@parametrize_first(
    "service, patient", [("lower", "patient/{id}"), ("canonical", "Patient/{id}"), ("lower", ABSOLUTE), ("canonical", ABSOLUTE)]
)
async def test_references_are_written_as_the_order_wrote_them(service: str, patient: str) -> None:
    found = await deliver(patient, service)
    request, observation, report = found["ProcedureRequest"], found["Observation"], found["DiagnosticReport"]
    assert observation["subject"] == report["subject"] == request["subject"]
    assert observation["specimen"] in request["specimen"]
    assert report["basedOn"] == found["Task"]["basedOn"]
    kind = "Observation" if service == "canonical" else "observation"
    assert report["result"] == [{"reference": f"{kind}/{observation['id']}"}]


@pytest.mark.slow
async def test_one_spelling_can_be_set_for_all_references() -> None:
    found = await deliver(ABSOLUTE, "lower", references="lower")
    observation, report = found["Observation"], found["DiagnosticReport"]
    written = [observation["subject"], report["subject"], observation["specimen"], *report["basedOn"], *report["result"]]
    kinds = ["patient", "patient", "specimen", "procedurerequest", "observation"]
    assert [each["reference"].partition("/")[0] for each in written] == kinds
