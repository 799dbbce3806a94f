"""References of uploads: spelled as the order spelled its own, which its service took, or as the settings say."""

from __future__ import annotations

import copy
import json
from typing import Any, Literal

import pytest

from lab_agent.domain.lab_messages import LabReport
from lab_agent.workflow.result_inbox import StoreInbox
from lab_sandbox import updates
from tests.harness.orders import OrderTemplate
from tests.harness.results import haemoglobin, make_report
from tests.harness.settings import make_settings
from tests.harness.world import World
from tests.integration.workflow.conftest import pick_template

Spelling = Literal["as_read", "lower", "fhir"]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)


def _order_spelled(world: World, patient: str) -> str:
    """An order whose partner wrote the Patient's reference in this form; the service spells the others."""
    template = pick_template(world, 1)
    created = updates.create(world.service, "Patient", copy.deepcopy(template.patient), world.clinic).ref.id
    text = json.dumps(template.bundle, default=float).replace("patient/PATIENT", patient.format(id=created))
    return world.place_order(OrderTemplate(bundle=json.loads(text), patient=template.patient), patient=created)


async def _deliver(world: World, task: str) -> None:
    """Take the order from the service, and deliver a result of it, with the whole agent."""
    agent = world.agent()
    await agent.poll.run()
    await world.drain(agent)
    (order,) = world.lis.submitted
    report: LabReport = make_report(haemoglobin("13.2", specimen=order.specimens[0].id), order=order.key)
    await StoreInbox(world.store, world.clock, "folder").accept("m1", report)
    await world.drain(agent)
    assert world.get_task(task)["status"] == "completed"


def _uploaded(world: World, kind: str) -> dict[str, Any]:
    (found,) = world.service.store.find(kind, [], lambda _: True, limit=5)
    body: dict[str, Any] = json.loads(found.body)
    return body


def _request(world: World) -> dict[str, Any]:
    return _uploaded(world, "ProcedureRequest")


@pytest.mark.parametrize("service", ["lower", "canonical"])
@pytest.mark.parametrize("patient", ["patient/{id}", "Patient/{id}", "http://service.test:8480/fhir/Patient/{id}"])
async def test_references_are_written_as_the_order_wrote_them(service: str, patient: str) -> None:
    world = World("references", rules={"reference_style": service})
    task = _order_spelled(world, patient)
    await _deliver(world, task)
    request, observation, report = _request(world), _uploaded(world, "Observation"), _uploaded(world, "DiagnosticReport")
    line = next(each for each in world.line_tasks(task))
    assert observation["subject"] == report["subject"] == request["subject"]
    assert observation["specimen"] in request["specimen"]
    assert report["basedOn"] == line["basedOn"]
    kind = "Observation" if service == "canonical" else "observation"
    assert report["result"] == [{"reference": f"{kind}/{observation['id']}"}]


@pytest.mark.parametrize(("spelling", "written"), [("lower", str.lower), ("fhir", str)])
async def test_one_spelling_can_be_set_for_all_references(spelling: Spelling, written: Any) -> None:
    world = World("references")
    settings = world.settings
    exchange = settings.exchange.model_copy(update={"references": spelling})
    world.settings = make_settings(results={"documents": "none"}).model_copy(update={"exchange": exchange})
    task = _order_spelled(world, "http://service.test:8480/fhir/Patient/{id}" if spelling == "lower" else "patient/{id}")
    await _deliver(world, task)
    observation, report = _uploaded(world, "Observation"), _uploaded(world, "DiagnosticReport")
    found = [observation["subject"], report["subject"], observation["specimen"], *report["basedOn"], *report["result"]]
    types = ("Patient", "Patient", "Specimen", "ProcedureRequest", "Observation")
    assert [each["reference"].partition("/")[0] for each in found] == [written(each) for each in types]
