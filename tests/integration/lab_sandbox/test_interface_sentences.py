"""What the interface says of orders, updates and uploads, by sentence: alike in the plain and in the strict service."""

import copy
import json

import httpx
import pytest

from tests.harness.clock import wait_until

LAB = "http://codes.lab.example"
SECOND = f"{LAB}/second-labels"
NUMBER = "12345-ABCDE-12345678"
OLD_NUMBER = {"identifier": {"system": f"{LAB}/mis", "value": NUMBER}}
TOLERANCE_TEST = "006.001"
TYPES = ("patient", "specimen", "procedurerequest", "task", "contract")
NAMES = ("Patient", "Specimen", "ProcedureRequest", "Task", "Contract")


@pytest.fixture(params=[False, True], ids=["plain", "strict"])
def service(request, world_factory):
    return world_factory(strict=request.param, tolerance_tests=(TOLERANCE_TEST,))


def spelled(node, world):
    """References as the service writes them: STU3's type names in the strict one."""
    text = json.dumps(node)
    if world.app.state.service.config.strict:
        for lower, name in zip(TYPES, NAMES, strict=True):
            text = text.replace(f'"{lower}/', f'"{name}/')
    return json.loads(text)


async def send_order(world, helpers, change, lines=2):
    bundle = helpers.order_bundle(await world.patient(), lines)
    change(bundle)
    return await world.client.post("/fhir/$CreateDiagnosticRequest", json=spelled(bundle, world), headers=world.clinic)


async def stored(world, helpers, kind, number=0, change=lambda _: None):
    answer = await send_order(world, helpers, change)
    assert answer.status_code == 200, answer.text
    return [one["resource"] for one in answer.json()["entry"] if one["resource"]["resourceType"] == kind][number]


async def put(world, resource, headers):
    path = f"/fhir/{resource['resourceType']}/{resource['id']}"
    return await world.client.put(path, json=resource, headers=headers | {"If-Match": 'W/"1"'})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/fhir/Nonsense/1", 404),
        ("GET", "/nowhere", 404),
        ("PATCH", "/fhir/Task/1", 405),
        ("GET", "/fhir/Task/none", 404),
        ("POST", "/fhir/Patient", 400),
        ("GET", "/eta", 400),
        ("POST", "/connect/token", 400),
        ("GET", "/connect/authorize", 400),
    ],
)
async def test_every_failure_has_an_operation_outcome(world, method, path, status):
    answer = await world.client.request(method, path, headers=world.clinic)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert answer.json()["resourceType"] == "OperationOutcome"
    for issue in answer.json()["issue"]:
        assert issue["severity"] in {"fatal", "error", "warning", "information"}
        assert issue["code"]
        assert issue["diagnostics"]


def problems(helpers, answer, status=422):
    """Pairs of element and rule."""
    assert answer.status_code == status, answer.text
    lines = [one.rpartition(" (rule ") for one in helpers.diagnostics(answer).splitlines()]
    return {(start.partition(": ")[0].removeprefix("Bundle."), rule.rstrip(")")) for start, _, rule in lines}


def fields(kind, number=0, **values):
    """Sets fields of one resource of the order."""

    def change(bundle):
        found = [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]
        found[number].update(copy.deepcopy(values))

    return change


def study(code, *changes):
    def change(bundle):
        line = next(one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == "ProcedureRequest")
        line["code"]["coding"][0]["code"] = code
        for one in changes:
            one(bundle)

    return change


def option(code="sms", system=f"{LAB}/notification", **value):
    return {"type": {"coding": [{"system": system, "code": code}]}, **(value or {"valueBoolean": True})}


def answered(value, **item):
    question = {"linkId": "1", "text": "Week", "answer": [value]} | item
    return fields("QuestionnaireResponse", item=[{key: one for key, one in question.items() if one is not None}])


def second_container(*values, own=True):
    """A second container of the tube; each has its own barcode, and these second ones."""

    def change(bundle):
        first = bundle["entry"][1]["resource"]["container"][0]
        first["identifier"] += [{"system": SECOND, "value": "1234-5678"}]
        second = copy.deepcopy(first)
        labels = [{"system": f"{LAB}/labels", "value": "1000000018"}] if own else []
        second["identifier"] = labels + [{"system": SECOND, "value": one} for one in values]
        bundle["entry"][1]["resource"]["container"].append(second)

    return change


def samples(*times):
    """The tube of the first line is one sample for each of these times."""

    def change(bundle):
        tube = bundle["entry"][1]
        line = next(one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == "ProcedureRequest")
        line["specimen"] = []
        for number, time in enumerate(times):
            sample = copy.deepcopy(tube) | {"fullUrl": f"urn:uuid:00000000-0000-4000-8000-00000000000{number}"}
            sample["resource"]["container"][0]["identifier"][0]["value"] += str(number)
            sample["resource"]["collection"].pop("collectedDateTime")
            sample["resource"]["collection"] |= {"collectedDateTime": time} if time else {}
            bundle["entry"].append(sample)
            line["specimen"].append({"reference": sample["fullUrl"]})

    return change


def both_links(bundle):
    for one in bundle["entry"]:
        for link in one["resource"].get("supportingInfo", ()):
            link["reference"] = "contract/contract-100"


TIMES = ("2026-01-05T07:00:00+00:00", "2026-01-05T08:00:00+00:00", "2026-01-05T09:00:00+00:00")

BAD_ORDERS = [
    # basedOn is only for the follow-up report study, as an identifier of the system and shape
    (fields("ProcedureRequest", basedOn=[OLD_NUMBER]), "entry[2].resource.basedOn[0]", "follow-up-number"),
    (fields("ProcedureRequest", basedOn=[{"reference": "task/1"}]), "entry[2].resource.basedOn[0]", "follow-up-number"),
    (
        study("190.1558", fields("ProcedureRequest", basedOn=[{"identifier": {"system": "urn:x", "value": NUMBER}}])),
        "entry[2].resource.basedOn[0]",
        "follow-up-number",
    ),
    (study("190.1558", fields("ProcedureRequest", basedOn=[OLD_NUMBER, {}])), "entry[2].resource.basedOn[1]", "follow-up-number"),
    # Task: basedOn and partOf are of the ProcedureRequest level
    (fields("Task", 0, basedOn=[{"reference": "urn:uuid:0"}]), "entry[0].resource.basedOn", "task-based-on"),
    (fields("Task", 0, partOf=[{"reference": "urn:uuid:0"}]), "entry[0].resource.partOf", "task-part-of"),
    (fields("Task", 1, partOf=None), "entry[3].resource.partOf", "task-part-of"),
    (fields("Task", 2, basedOn=[]), "entry[5].resource.basedOn", "task-based-on"),
    # a note is an array of objects with a text
    (fields("ProcedureRequest", note=["please"]), "entry[2].resource.note", "array"),
    (fields("ProcedureRequest", note=[{"authorString": "x"}]), "entry[2].resource.note[0]", "line-note"),
    (fields("ProcedureRequest", note=[{"text": "x"}, {"text": " "}]), "entry[2].resource.note[1]", "line-note"),
    # input: system, code and valueBoolean
    (fields("Task", input=[option(system="urn:other")]), "entry[0].resource.input[0]", "task-notification"),
    (fields("Task", input=[option(), option("fax")]), "entry[0].resource.input[1]", "task-notification"),
    (fields("Task", input=[option(valueString="true")]), "entry[0].resource.input[0]", "task-notification"),
    (fields("Task", input=[option(valueBoolean="true")]), "entry[0].resource.input[0]", "task-notification"),
    (fields("Task", input=[{"type": {"text": "sms"}, "valueBoolean": True}]), "entry[0].resource.input[0]", "task-notification"),
    # answers: linkId, text, and one value in its form
    (answered({"valueInteger": 12}, text=None), "entry[6].resource.item[0].text", "answers-text"),
    (answered({"valueInteger": 12}, text=" "), "entry[6].resource.item[0].text", "answers-text"),
    (answered({"valueInteger": "12"}), "entry[6].resource.item[0].answer[0].valueInteger", "answers-value"),
    (answered({"valueInteger": True}), "entry[6].resource.item[0].answer[0].valueInteger", "answers-value"),
    (answered({"valueInteger": 1.5}), "entry[6].resource.item[0].answer[0].valueInteger", "answers-value"),
    (answered({"valueCoding": {"code": "yes"}}), "entry[6].resource.item[0].answer[0].valueCoding", "answers-value"),
    (answered({"valueCoding": {"system": "urn:x"}}), "entry[6].resource.item[0].answer[0].valueCoding", "answers-value"),
    (answered({"valueCoding": "yes"}), "entry[6].resource.item[0].answer[0].valueCoding", "answers-value"),
    (answered({"valueBoolean": "yes"}), "entry[6].resource.item[0].answer[0].valueBoolean", "answers-value"),
    (answered({"valueInteger": 1, "valueString": "x"}), "entry[6].resource.item[0].answer[0].value[x]", "answers-value"),
    (answered({"valueColour": "red"}), "entry[6].resource.item[0].answer[0].value[x]", "answers-value"),
    # the contract by reference or by identifier
    (both_links, "entry[2].resource.supportingInfo", "contract-link"),
    (fields("Specimen", collection={"collectedDateTime": TIMES[0]}), "entry[1].resource.collection.method", "specimen-method"),
    # rule 3: both barcodes in each container
    (study("042.036", second_container()), "entry[1].resource.container[1].identifier", "two-barcodes"),
    (study("042.075", second_container("123-456-789")), "entry[1].resource.container[1].identifier", "two-barcodes"),
    (study("042.036", second_container("1234-5679", own=False)), "entry[1].resource.container[1].identifier", "two-barcodes"),
    (study("042.076", second_container("123-456-789")), "entry[1].resource.container[0].identifier", "two-barcodes"),
    # tolerance tests: every sample has a time of its own
    (study(TOLERANCE_TEST, samples(TIMES[0], None)), "entry[8].resource.collection.collectedDateTime", "sample-time"),
    (study(TOLERANCE_TEST, samples(TIMES[0], TIMES[0])), "entry[8].resource.collection.collectedDateTime", "sample-time"),
    (
        study(TOLERANCE_TEST, samples(*TIMES[:2], "2026-01-05T11:00:00+03:00")),
        "entry[9].resource.collection.collectedDateTime",
        "sample-time",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "element", "rule"), BAD_ORDERS)
async def test_order_beside_the_document_refused(service, helpers, change, element, rule):
    assert (element, rule) in problems(helpers, await send_order(service, helpers, change))


@pytest.mark.parametrize(
    "change",
    [
        study("190.1558", fields("ProcedureRequest", basedOn=[OLD_NUMBER])),
        study("190.1558"),
        fields("Task", input=[option("email", valueBoolean=False), option()]),
        fields("ProcedureRequest", note=[{"text": "x"}, {"text": "y"}]),
        answered({"valueCoding": {"code": "yes", "system": "urn:x"}}),
        answered({"valueInteger": 0}),
        answered({"valueString": "none"}),
        answered({"valueBoolean": False}),
        answered(None, answer=None, item=[{"linkId": "1.1", "text": "Day", "answer": [{"valueInteger": 3}]}]),
        study("042.036", second_container("1234-5679")),
        study("042.075", second_container("123-456-789", "1234-5679")),
        study(TOLERANCE_TEST, samples(*TIMES)),
        study("002.001", samples(TIMES[0], TIMES[0], None)),
    ],
)
async def test_order_by_the_document_accepted(service, helpers, change):
    answer = await send_order(service, helpers, change)
    assert answer.status_code == 200, answer.text


def without(name):
    return lambda body: {key: value for key, value in body.items() if key != name}


def with_fields(**values):
    return lambda body: body | copy.deepcopy(values)


@pytest.mark.parametrize(
    ("who", "kind", "number", "change", "element", "rule"),
    [
        ("clinic", "ProcedureRequest", 0, with_fields(status="completed"), "ProcedureRequest.status", "line-status"),
        ("clinic", "ProcedureRequest", 0, without("status"), "ProcedureRequest.status", "line-status"),
        ("clinic", "ProcedureRequest", 0, without("requisition"), "ProcedureRequest.requisition", "requisition"),
        ("clinic", "ProcedureRequest", 0, with_fields(basedOn=[OLD_NUMBER]), "ProcedureRequest.basedOn[0]", "follow-up-number"),
        ("clinic", "ProcedureRequest", 0, with_fields(note=[{}]), "ProcedureRequest.note[0]", "line-note"),
        ("clinic", "Specimen", 0, with_fields(extension=[]), "Specimen.extension", "specimen-extension"),
        ("clinic", "QuestionnaireResponse", 0, without("status"), "QuestionnaireResponse.status", "answers-status"),
        ("clinic", "Task", 0, with_fields(input=[option("fax")]), "Task.input[0]", "task-notification"),
        ("clinic", "Task", 1, without("partOf"), "Task.partOf", "task-part-of"),
        ("laboratory", "Task", 1, without("basedOn"), "Task.basedOn", "task-links"),
        ("laboratory", "Task", 1, without("partOf"), "Task.partOf", "task-links"),
        ("laboratory", "Task", 1, with_fields(partOf=[{"reference": "task/other"}]), "Task.partOf", "task-links"),
        ("laboratory", "Task", 0, without("code"), "Task.code", "task-links"),
        ("laboratory", "Task", 0, with_fields(basedOn=[{"reference": "procedurerequest/1"}]), "Task.basedOn", "task-links"),
    ],
)  # fmt: skip
async def test_update_beside_the_document_refused(service, helpers, who, kind, number, change, element, rule):
    """The table of a resource holds for its updates, and a laboratory's leave alone what a Task is about."""
    resource = await stored(service, helpers, kind, number)
    answer = await put(service, spelled(change(resource), service), getattr(service, who))
    assert (element, rule) in problems(helpers, answer)


async def test_receiving_side_does_not_edit_the_request(service, helpers):
    rights = fields("ProcedureRequest", meta=helpers.grant("read", "updatebody"))
    line = await stored(service, helpers, "ProcedureRequest", change=rights)
    answer = await put(service, line, service.laboratory)
    assert problems(helpers, answer) == {("ProcedureRequest", "line-edited")}


@pytest.mark.parametrize(
    ("changes", "element"),
    [
        ({"gender": None}, "Patient.gender"),
        ({"birthDate": None}, "Patient.birthDate"),
        ({"birthDate": "1980-13"}, "Patient.birthDate"),
        ({"name": [{"family": "123456789", "given": ["-", "-"]}]}, "Patient.name[0].family"),
        ({"name": []}, None),
        ({"name": [{"family": "Sample"}]}, None),
        ({"birthDate": "1980"}, None),
        ({"birthDate": "1980-02"}, None),
    ],
)
async def test_patient_update_needs_gender_and_birth_date(service, helpers, changes, element):
    """Names are required on creation alone; a birth date is a date of FHIR."""
    made = (await service.client.post("/fhir/Patient", json=helpers.patient(), headers=service.clinic)).json()
    answer = await put(service, made | changes, service.clinic)
    if element is None:
        assert answer.status_code == 200, answer.text
    else:
        assert element in {path for path, _ in problems(helpers, answer)}


@pytest.mark.parametrize(
    ("changes", "element"),
    [
        ({"method": "photometry"}, "Observation.method"),
        ({"method": [{"text": "photometry"}]}, "Observation.method"),
        ({"method": {}}, "Observation.method"),
        ({"method": {"coding": [{"system": "urn:methods"}]}}, "Observation.method"),
        ({"subject": [{"reference": "patient/1"}]}, "Observation.subject"),
        ({"specimen": "specimen/1"}, "Observation.specimen"),
        ({"referenceRange": [{"text": 5}]}, "Observation.referenceRange[0].text"),
        ({"referenceRange": [{"age": "adult"}]}, "Observation.referenceRange[0].age"),
        ({"meta": {}}, "Observation.meta.security"),
        ({"meta": {"security": [{"system": "read", "code": "guid-laboratory"}]}}, "Observation.meta.security"),
        ({"method": {"text": "photometry"}}, None),
        ({"method": {"coding": [{"system": "urn:methods", "code": "p"}]}}, None),
    ],
)
async def test_observation_beside_the_document_refused(service, helpers, changes, element):
    answer = await service.upload(spelled(helpers.observation(**changes), service))
    if element is None:
        assert answer.status_code == 201, answer.text
    else:
        assert element in {path for path, _ in problems(helpers, answer)}


@pytest.mark.parametrize(("header", "status"), [('W/"1"', 200), ('"1"', 400), ("1", 400), ("*", 400), ('w/"1"', 400)])
async def test_if_match_in_other_form_refused(service, helpers, header, status):
    task = await stored(service, helpers, "Task")
    answer = await service.client.put(f"/fhir/Task/{task['id']}", json=task, headers=service.laboratory | {"If-Match": header})
    assert answer.status_code == status


@pytest.mark.parametrize("granted", [False, True])
async def test_partner_reads_own_patient_only_with_right(service, helpers, granted):
    rights = helpers.grant("read", guid=helpers.CLINIC if granted else helpers.LABORATORY)
    made = (await service.client.post("/fhir/Patient", json=helpers.patient(meta=rights), headers=service.clinic)).json()
    answer = await service.client.get(f"/fhir/Patient/{made['id']}", headers=service.clinic)
    assert answer.status_code == (200 if granted else 403)
    if not granted:
        add = {"resourceType": "Parameters", "parameter": [{"valueMeta": helpers.grant("read", guid=helpers.CLINIC)}]}
        await service.client.post(f"/fhir/Patient/{made['id']}/$meta-add", json=add, headers=service.clinic)
        assert (await service.client.get(f"/fhir/Patient/{made['id']}", headers=service.clinic)).status_code == 200


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


@pytest.fixture
def notified(world_factory, helpers, monkeypatch):
    """A service that posts to the clinic's address; its receiver gives these answers first."""
    monkeypatch.setattr("lab_sandbox.notifications.RETRY_DELAYS", (0.0, 0.0))

    def make(*answers):
        parties = helpers.make_config().counterparties
        clinic = parties[0].model_copy(update={"address": "http://clinic.test/notices"})
        world = world_factory(counterparties=(clinic, *parties[1:]))
        receiver = Receiver(*answers)
        world.lab.handle_others = receiver
        return world, receiver

    return make


@pytest.mark.parametrize(
    ("answers", "posts"),
    [
        ((), [1, 2]),
        ((None, 503), [1, 1, 1, 2]),
        ((None, None, None), [1, 1, 1, 2]),
        ((400,), [1, 2]),
    ],
)
async def test_status_change_posted_to_address_of_card(notified, answers, posts):
    """In order, retried a little, and in the list whatever the receiver does."""
    world, receiver = notified(*answers)
    order, line, _ = (await world.created_order())["Task"]
    for number, task in enumerate((line, order), 1):
        assert (await put(world, task | {"status": "completed"}, world.laboratory)).status_code == 200
        await wait_until(lambda last=number: any(body["number"] == last for _, body in receiver.bodies))
    await wait_until(lambda: len(receiver.bodies) >= len(posts))
    assert [body["number"] for _, body in receiver.bodies] == posts
    listed = (await world.client.get("/notifications", headers=world.clinic)).json()["notifications"]
    assert receiver.bodies[-1] == ("http://clinic.test/notices", listed[-1])
    assert [(one["level"], one["status"]) for one in listed] == [("line", "completed"), ("order", "completed")]
