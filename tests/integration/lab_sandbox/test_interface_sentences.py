"""What the interface says of orders, updates and uploads, by sentence: alike in the plain and in the strict service."""

import copy
import json

import httpx
import pytest

from tests.harness.clock import wait_until
from tests.integration.lab_sandbox.world import (
    CLINIC,
    DROP,
    LAB,
    LABORATORY,
    diagnostics,
    find_accepted,
    grant,
    make_config,
    meta_add,
    observation,
    patient,
    problems,
)

SECOND = f"{LAB}/second-labels"
NUMBER = "12345-ABCDE-12345678"
OLD_NUMBER = {"identifier": {"system": f"{LAB}/mis", "value": NUMBER}}
FOREIGN_NUMBER = {"identifier": {"system": "urn:x", "value": NUMBER}}
TOLERANCE_TEST = "006.001"
STUDY = "2.code.coding.0.code"
TIMES = ("2026-01-05T07:00:00+00:00", "2026-01-05T08:00:00+00:00", "2026-01-05T09:00:00+00:00")


@pytest.fixture(params=[False, True], ids=["plain", "strict"])
def service(request, world_factory):
    return world_factory(strict=request.param, tolerance_tests=(TOLERANCE_TEST,))


async def test_every_failure_has_an_operation_outcome(world):
    for call, status in {
        "GET /fhir/Nonsense/1": 404,
        "GET /nowhere": 404,
        "GET /": 404,
        "PATCH /fhir/Task/1": 405,
        "DELETE /fhir/Task/1": 405,
        "GET /fhir/Task/none": 404,
        "POST /fhir/Patient": 400,
        "GET /eta": 400,
        "POST /connect/token": 400,
        "GET /connect/authorize": 400,
    }.items():
        method, path = call.split()
        answer = await world.client.request(method, path, headers=world.clinic)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), call
        assert diagnostics(answer)
        assert all(issue["code"] for issue in answer.json()["issue"])


def option(code="sms", system=f"{LAB}/notification", **value):
    return {"type": {"coding": [{"system": system, "code": code}]}, **(value or {"valueBoolean": True})}


def answered(value, **item):
    question = {"linkId": "1", "text": "Week", "answer": [value]} | item
    return {"6.item": [{key: one for key, one in question.items() if one is not None}]}


def second_container(study, *values, own=True):
    """A second container of the tube; each has its own barcode, and these second ones."""

    def change(bundle):
        bundle["entry"][2]["resource"]["code"]["coding"][0]["code"] = study
        containers = bundle["entry"][1]["resource"]["container"]
        containers[0]["identifier"] += [{"system": SECOND, "value": "1234-5678"}]
        labels = [{"system": f"{LAB}/labels", "value": "1000000018"}] if own else []
        second = labels + [{"system": SECOND, "value": one} for one in values]
        containers.append(copy.deepcopy(containers[0]) | {"identifier": second})

    return change


def samples(study, *times):
    """The tube of the first line is one sample for each of these times."""

    def change(bundle):
        _, tube, line, *_ = bundle["entry"]
        line["resource"]["code"]["coding"][0]["code"] = study
        line["resource"]["specimen"] = []
        for number, time in enumerate(times):
            sample = copy.deepcopy(tube) | {"fullUrl": f"urn:uuid:00000000-0000-4000-8000-00000000000{number}"}
            sample["resource"]["container"][0]["identifier"][0]["value"] += str(number)
            del sample["resource"]["collection"]["collectedDateTime"]
            sample["resource"]["collection"] |= {"collectedDateTime": time} if time else {}
            bundle["entry"].append(sample)
            line["resource"]["specimen"].append({"reference": sample["fullUrl"]})

    return change


ANSWER = "6.item[0].answer[0]"
BAD_ORDERS = [
    # basedOn is only for the follow-up report study, as an identifier of the system and shape
    ("2.basedOn[0]", "follow-up-number", {"2.basedOn": [OLD_NUMBER]}),
    ("2.basedOn[0]", "follow-up-number", {"2.basedOn": [{"reference": "task/1"}]}),
    ("2.basedOn[0]", "follow-up-number", {STUDY: "190.1558", "2.basedOn": [FOREIGN_NUMBER]}),
    ("2.basedOn[1]", "follow-up-number", {STUDY: "190.1558", "2.basedOn": [OLD_NUMBER, {}]}),
    # Task: basedOn and partOf are of the ProcedureRequest level
    ("0.basedOn", "task-based-on", {"0.basedOn": [{"reference": "urn:uuid:0"}]}),
    ("0.partOf", "task-part-of", {"0.partOf": [{"reference": "urn:uuid:0"}]}),
    ("3.partOf", "task-part-of", {"3.partOf": None}),
    ("5.basedOn", "task-based-on", {"5.basedOn": []}),
    # a note is an array of objects with a text
    ("2.note", "array", {"2.note": ["please"]}),
    ("2.note[0]", "line-note", {"2.note": [{"authorString": "x"}]}),
    ("2.note[1]", "line-note", {"2.note": [{"text": "x"}, {"text": " "}]}),
    # input: system, code and valueBoolean
    ("0.input[0]", "task-notification", {"0.input": [option(system="urn:other")]}),
    ("0.input[1]", "task-notification", {"0.input": [option(), option("fax")]}),
    ("0.input[0]", "task-notification", {"0.input": [option(valueString="true")]}),
    ("0.input[0]", "task-notification", {"0.input": [option(valueBoolean="true")]}),
    ("0.input[0]", "task-notification", {"0.input": [{"type": {"text": "sms"}, "valueBoolean": True}]}),
    # answers: linkId, text, and one value in its form
    ("6.item[0].text", "answers-text", answered({"valueInteger": 12}, text=None)),
    ("6.item[0].text", "answers-text", answered({"valueInteger": 12}, text=" ")),
    *((f"{ANSWER}.valueInteger", "answers-value", answered({"valueInteger": each})) for each in ("12", True, 1.5)),
    (f"{ANSWER}.valueCoding", "answers-value", answered({"valueCoding": {"code": "yes"}})),
    (f"{ANSWER}.valueCoding", "answers-value", answered({"valueCoding": {"system": "urn:x"}})),
    (f"{ANSWER}.valueCoding", "answers-value", answered({"valueCoding": "yes"})),
    (f"{ANSWER}.valueBoolean", "answers-value", answered({"valueBoolean": "yes"})),
    (f"{ANSWER}.value[x]", "answers-value", answered({"valueInteger": 1, "valueString": "x"})),
    (f"{ANSWER}.value[x]", "answers-value", answered({"valueColour": "red"})),
    # the contract by reference or by identifier
    ("2.supportingInfo", "contract-link", {"2,4.supportingInfo.0.reference": "contract/contract-100"}),
    ("1.collection.method", "specimen-method", {"1.collection.method": DROP}),
    # rule 3: both barcodes in each container
    ("1.container[1].identifier", "two-barcodes", second_container("042.036")),
    ("1.container[1].identifier", "two-barcodes", second_container("042.075", "123-456-789")),
    ("1.container[1].identifier", "two-barcodes", second_container("042.036", "1234-5679", own=False)),
    ("1.container[0].identifier", "two-barcodes", second_container("042.076", "123-456-789")),
    # tolerance tests: every sample has a time of its own
    ("8.collection.collectedDateTime", "sample-time", samples(TOLERANCE_TEST, TIMES[0], None)),
    ("8.collection.collectedDateTime", "sample-time", samples(TOLERANCE_TEST, TIMES[0], TIMES[0])),
    ("9.collection.collectedDateTime", "sample-time", samples(TOLERANCE_TEST, *TIMES[:2], "2026-01-05T11:00:00+03:00")),
]  # fmt: skip


@pytest.mark.parametrize("part", range(2))
async def test_order_beside_the_document_refused(service, part):
    assert await find_accepted(service, BAD_ORDERS[part::2]) == []


async def test_order_by_the_document_accepted(service):
    for number, change in enumerate(
        [
            {STUDY: "190.1558", "2.basedOn": [OLD_NUMBER]},
            {STUDY: "190.1558"},
            {"0.input": [option("email", valueBoolean=False), option()]},
            {"2.note": [{"text": "x"}, {"text": "y"}]},
            {"1.collection.collectedDateTime": DROP},
            answered({"valueCoding": {"code": "yes", "system": "urn:x"}}),
            answered({"valueInteger": 0}),
            answered({"valueString": "none"}),
            answered({"valueBoolean": False}),
            answered(None, answer=None, item=[{"linkId": "1.1", "text": "Day", "answer": [{"valueInteger": 3}]}]),
            second_container("042.036", "1234-5679"),
            second_container("042.075", "123-456-789", "1234-5679"),
            samples(TOLERANCE_TEST, *TIMES),
            samples("002.001", TIMES[0], TIMES[0], None),
        ]
    ):
        answer = await service.order(change=change)
        assert answer.status_code == 200, f"{number}: {answer.text}"


async def test_update_beside_the_document_refused(service):
    """The table of a resource holds for its updates, and a laboratory's leave alone what a Task is about."""
    order = await service.created_order()
    rows = [
        ("clinic", "ProcedureRequest", 0, {"status": "completed"}, "ProcedureRequest.status", "line-status"),
        ("clinic", "ProcedureRequest", 0, {"status": DROP}, "ProcedureRequest.status", "line-status"),
        ("clinic", "ProcedureRequest", 0, {"requisition": DROP}, "ProcedureRequest.requisition", "requisition"),
        ("clinic", "ProcedureRequest", 0, {"basedOn": [OLD_NUMBER]}, "ProcedureRequest.basedOn[0]", "follow-up-number"),
        ("clinic", "ProcedureRequest", 0, {"note": [{}]}, "ProcedureRequest.note[0]", "line-note"),
        ("clinic", "Specimen", 0, {"extension": []}, "Specimen.extension", "specimen-extension"),
        ("clinic", "QuestionnaireResponse", 0, {"status": DROP}, "QuestionnaireResponse.status", "answers-status"),
        ("clinic", "Task", 0, {"input": [option("fax")]}, "Task.input[0]", "task-notification"),
        ("clinic", "Task", 1, {"partOf": DROP}, "Task.partOf", "task-part-of"),
        ("laboratory", "Task", 1, {"basedOn": DROP}, "Task.basedOn", "task-links"),
        ("laboratory", "Task", 1, {"partOf": DROP}, "Task.partOf", "task-links"),
        ("laboratory", "Task", 1, {"partOf": [{"reference": "task/other"}]}, "Task.partOf", "task-links"),
        ("laboratory", "Task", 0, {"code": DROP}, "Task.code", "task-links"),
        ("laboratory", "Task", 0, {"basedOn": [{"reference": "procedurerequest/1"}]}, "Task.basedOn", "task-links"),
    ]
    for who, kind, number, fields, element, rule in rows:
        body = {key: one for key, one in (order[kind][number] | fields).items() if one is not DROP}
        found = problems(await service.put(service.spelled(body), getattr(service, who)))
        assert (element, rule) in found, (kind, fields)


async def test_receiving_side_does_not_edit_the_request(service):
    (line, *_) = (await service.created_order(change={"2.meta": grant("read", "updatebody")}))["ProcedureRequest"]
    assert problems(await service.put(line)) == {("ProcedureRequest", "line-edited")}


async def test_patient_update_needs_gender_and_birth_date(service):
    """Names are required on creation alone; a birth date is a date of FHIR."""
    made = (await service.client.post("/fhir/Patient", json=patient(), headers=service.clinic)).json()
    nine_digits = {"name": [{"family": "123456789", "given": ["-", "-"]}]}
    for changes, element in (
        ({"gender": None}, "Patient.gender"),
        ({"birthDate": None}, "Patient.birthDate"),
        ({"birthDate": "1980-13"}, "Patient.birthDate"),
        (nine_digits, "Patient.name[0].family"),
    ):
        answer = await service.put(made | changes, service.clinic)
        assert element in {path for path, _ in problems(answer)}
    accepted = ({"name": []}, {"name": [{"family": "Sample"}]}, {"birthDate": "1980"}, {"birthDate": "1980-02"})
    for version, changes in enumerate(accepted, 1):
        answer = await service.put(made | changes, service.clinic, version)
        assert answer.status_code == 200, answer.text


async def test_observation_beside_the_document_refused(service):
    for changes, element in (
        ({"method": "photometry"}, "method"),
        ({"method": [{"text": "photometry"}]}, "method"),
        ({"method": {}}, "method"),
        ({"method": {"coding": [{"system": "urn:methods"}]}}, "method"),
        ({"subject": [{"reference": "patient/1"}]}, "subject"),
        ({"specimen": "specimen/1"}, "specimen"),
        ({"referenceRange": [{"text": 5}]}, "referenceRange[0].text"),
        ({"referenceRange": [{"age": "adult"}]}, "referenceRange[0].age"),
        ({"meta": {}}, "meta.security"),
        ({"meta": grant("read")}, "meta.security"),
    ):
        answer = await service.upload(service.spelled(observation(**changes)))
        assert f"Observation.{element}" in {path for path, _ in problems(answer)}
    for method in ({"text": "photometry"}, {"coding": [{"system": "urn:methods", "code": "p"}]}):
        assert (await service.upload(observation(method=method))).status_code == 201


async def test_if_match_in_other_form_refused(service):
    task = (await service.created_order())["Task"][0]
    for header in ('"1"', "1", "*", 'w/"1"', 'W/"x"'):
        assert (await service.put(task, version=header)).status_code == 400, header
    assert await service.status(f"/fhir/Task/{task['id']}", service.laboratory, "PUT", json=task) == 428
    assert (await service.put(task, version='W/"1"')).status_code == 200


@pytest.mark.parametrize("granted", [False, True])
async def test_partner_reads_own_patient_only_with_right(service, granted):
    rights = grant("read", guid=CLINIC if granted else LABORATORY)
    made = (await service.client.post("/fhir/Patient", json=patient(meta=rights), headers=service.clinic)).json()
    path = f"/fhir/Patient/{made['id']}"
    assert await service.status(path, service.clinic) == (200 if granted else 403)
    if not granted:
        add = meta_add(**grant("read", guid=CLINIC))
        await service.client.post(f"{path}/$meta-add", json=add, headers=service.clinic)
        assert await service.status(path, service.clinic) == 200


class Receiver:
    """The partner's side of notifications: what it got, and how it answers."""

    def __init__(self, *answers):
        self.bodies, self._answers = [], list(answers)

    def __call__(self, request):
        self.bodies.append((str(request.url), json.loads(request.content)))
        answer = self._answers.pop(0) if self._answers else 200
        if answer is None:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(answer)


@pytest.mark.parametrize(
    ("answers", "posts"),
    [((), [1, 2]), ((None, 503), [1, 1, 1, 2]), ((None, None, None), [1, 1, 1, 2]), ((400,), [1, 2])],
)
async def test_status_change_posted_to_address_of_card(world_factory, monkeypatch, answers, posts):
    """In order, retried a little, and in the list whatever the receiver does."""
    monkeypatch.setattr("lab_sandbox.notifications.RETRY_DELAYS", (0.0, 0.0))
    clinic, *others = make_config().counterparties
    world = world_factory(counterparties=(clinic.model_copy(update={"address": "http://clinic.test/notices"}), *others))
    world.lab.handle_others = receiver = Receiver(*answers)
    order, line, _ = (await world.created_order())["Task"]
    for number, task in enumerate((line, order), 1):
        assert (await world.put(task, status="completed")).status_code == 200
        await wait_until(lambda last=number: any(body["number"] == last for _, body in receiver.bodies))
    await wait_until(lambda: len(receiver.bodies) >= len(posts))
    assert [body["number"] for _, body in receiver.bodies] == posts
    listed = (await world.get("/notifications", world.clinic)).json()["notifications"]
    assert receiver.bodies[-1] == ("http://clinic.test/notices", listed[-1])
    assert [(one["level"], one["status"]) for one in listed] == [("line", "completed"), ("order", "completed")]
