"""Arrays, reference types and value forms as in the tables; the client's own identifiers stay unchanged."""

import copy

import pytest


def change_first(kind, **fields):
    def change(bundle):
        first = next(one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind)
        first.update(copy.deepcopy(fields))

    return change


def single(kind, *path):
    """Replaces an array of one object by the object."""

    def change(bundle):
        resources = [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]
        node = next(one for one in resources if path[0] in one)
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = node[path[-1]][0]

    return change


@pytest.mark.parametrize(
    ("change", "element"),
    [
        (single("ProcedureRequest", "identifier"), "entry[2].resource.identifier"),
        (single("ProcedureRequest", "supportingInfo"), "entry[2].resource.supportingInfo"),
        (single("ProcedureRequest", "specimen"), "entry[2].resource.specimen"),
        (single("ProcedureRequest", "code", "coding"), "entry[2].resource.code.coding"),
        (change_first("ProcedureRequest", note="please"), "entry[2].resource.note"),
        (single("Task", "basedOn"), "entry[3].resource.basedOn"),
        (single("Task", "partOf"), "entry[3].resource.partOf"),
        (change_first("Task", input="sms"), "entry[0].resource.input"),
        (single("Specimen", "container"), "entry[1].resource.container"),
        (single("Specimen", "container", 0, "identifier"), "entry[1].resource.container[0].identifier"),
        (single("QuestionnaireResponse", "item"), "entry[6].resource.item"),
        (single("QuestionnaireResponse", "item", 0, "answer"), "entry[6].resource.item[0].answer"),
    ],
)
async def test_order_scalar_instead_of_array_rejected(world, helpers, change, element):
    answer = await world.order(change=change)
    assert answer.status_code == 422
    problems = helpers.diagnostics(answer).splitlines()
    assert any(one.startswith(f"Bundle.{element}: ") and one.endswith("(rule array)") for one in problems), problems


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (change_first("QuestionnaireResponse", source={}), ["source", "answers-source"]),
        (
            change_first("QuestionnaireResponse", item=[{"linkId": "1", "item": [{"answer": [{}]}]}]),
            ["item[0].item[0].linkId", "item[0].item[0].answer[0]", "answers-value"],
        ),
        (change_first("Specimen", collection="today"), ["entry[1].resource.collection", "specimen-collection"]),
        (change_first("ProcedureRequest", identifier=[{"value": "1"}]), ["identifier[0]", "line-identifier"]),
    ],
)
async def test_order_other_required_fields_checked(world, helpers, change, names):
    answer = await world.order(change=change)
    assert answer.status_code == 422
    for name in names:
        assert name in helpers.diagnostics(answer)


async def test_order_subject_must_be_patient(world, helpers):
    def change(bundle):
        tube = next(one["fullUrl"] for one in bundle["entry"] if one["resource"]["resourceType"] == "Specimen")
        for one in helpers.of_type(bundle, "ProcedureRequest") + helpers.of_type(bundle, "Specimen"):
            one["subject"] = {"reference": tube}
        helpers.of_type(bundle, "QuestionnaireResponse")[0]["source"] = {"reference": tube}

    answer = await world.order(change=change)
    assert answer.status_code == 422
    assert helpers.diagnostics(answer).count("reference-type") == 4


async def test_answers_must_be_from_order_patient(world, helpers):
    other = await world.patient()
    change = change_first("QuestionnaireResponse", source={"reference": f"patient/{other}"})
    assert "one-patient" in helpers.diagnostics(await world.order(change=change))


async def test_patient_reference_spellings_are_equal(world, helpers):
    def change(bundle):
        line = helpers.of_type(bundle, "ProcedureRequest")[0]
        line["subject"] = {"reference": f"{helpers.BASE}fhir/Patient/{line['subject']['reference'].partition('/')[2]}"}

    answer = await world.order(change=change)
    assert answer.status_code == 200, answer.text


async def test_client_identifier_stays_unchanged(world, helpers):
    """Clients may use UUIDs as identifiers; a rewritten identifier could not be found again."""

    def change(bundle):
        line = helpers.of_type(bundle, "ProcedureRequest")[0]
        address = next(one["fullUrl"] for one in bundle["entry"] if one["resource"] is line)
        line["identifier"] = [{"system": "urn:ietf:rfc:3986", "value": address}]
        for one in helpers.of_type(bundle, "ProcedureRequest"):
            one["requisition"] = {"system": "urn:ietf:rfc:3986", "value": bundle["entry"][0]["fullUrl"]}

    line = helpers.of_type((await world.order(change=change)).json(), "ProcedureRequest")[0]
    assert line["identifier"][0]["value"].startswith("urn:uuid:")
    assert line["requisition"]["value"].startswith("urn:uuid:")


async def test_local_references_replaced_everywhere(world, helpers):
    def change(bundle):
        addresses = {one["resource"]["resourceType"]: one["fullUrl"] for one in bundle["entry"]}
        answers, tube = ({"reference": addresses[kind]} for kind in ("QuestionnaireResponse", "Specimen"))
        helpers.of_type(bundle, "ProcedureRequest")[0]["supportingInfo"].append(answers)
        helpers.of_type(bundle, "Task")[0]["focus"] = answers
        helpers.of_type(bundle, "Specimen")[0]["parent"] = [tube]
        helpers.of_type(bundle, "QuestionnaireResponse")[0]["extension"] = [{"url": "urn:x", "valueReference": tube}]

    answer = await world.order(change=change)
    assert answer.status_code == 200, answer.text
    assert "urn:uuid" not in answer.text
    order = answer.json()
    answers = f"questionnaireresponse/{helpers.of_type(order, 'QuestionnaireResponse')[0]['id']}"
    tube = f"specimen/{helpers.of_type(order, 'Specimen')[0]['id']}"
    assert helpers.of_type(order, "ProcedureRequest")[0]["supportingInfo"][1] == {"reference": answers}
    assert helpers.of_type(order, "Task")[0]["focus"] == {"reference": answers}
    assert helpers.of_type(order, "Specimen")[0]["parent"] == [{"reference": tube}]
    assert helpers.of_type(order, "QuestionnaireResponse")[0]["extension"][0]["valueReference"] == {"reference": tube}
    for line in helpers.of_type(order, "ProcedureRequest"):
        assert line["specimen"] == [{"reference": tube}]


@pytest.mark.parametrize(
    ("value", "element"),
    [
        ({"valueQuantity": "134"}, "Observation.valueQuantity"),
        ({"valueQuantity": {"value": "134"}}, "Observation.valueQuantity"),
        ({"valueCodeableConcept": "positive"}, "Observation.valueCodeableConcept"),
        ({"valueString": 134}, "Observation.valueString"),
        ({"valueTime": "25:00:00"}, "Observation.valueTime"),
        ({"valueDateTime": "today"}, "Observation.valueDateTime"),
        ({"valuePeriod": []}, "Observation.valuePeriod"),
    ],
)
async def test_value_of_wrong_type_rejected(world, helpers, value, element):
    observation = {key: one for key, one in helpers.observation().items() if key != "valueQuantity"} | value
    answer = await world.upload(observation)
    assert answer.status_code == 422
    assert element in helpers.diagnostics(answer)


@pytest.mark.parametrize(
    "value",
    [
        {"valueQuantity": {"value": 1.50, "unit": "g/L"}},
        {"valueCodeableConcept": {"text": "positive"}},
        {"valueString": "not found"},
        {"valueRange": {"low": {"value": 1}}},
        {"valueRatio": {"numerator": {"value": 1}, "denominator": {"value": 128}}},
        {"valueSampledData": {"origin": {"value": 0}, "period": 10, "dimensions": 1, "data": "1 2"}},
        {"valueAttachment": {"url": "fhir/Binary/1"}},
        {"valueTime": "07:30:00"},
        {"valueDateTime": "2026-01-05"},
        {"valuePeriod": {"start": "2026-01-05T07:30:00+03:00"}},
    ],
)
async def test_every_documented_value_type_accepted(world, helpers, value):
    observation = {key: one for key, one in helpers.observation().items() if key != "valueQuantity"} | value
    assert (await world.upload(observation)).status_code == 201


async def test_reference_range_bounds_must_be_quantities(world, helpers):
    answer = await world.upload(helpers.observation(referenceRange=[{"low": "120"}]))
    assert "Observation.referenceRange[0].low" in helpers.diagnostics(answer)


async def test_upload_references_must_have_documented_types(world, helpers):
    order = await world.created_order()
    line, task, patient = order["ProcedureRequest"][0], order["Task"][0], order["ProcedureRequest"][0]["subject"]["reference"]
    wrong = {"reference": f"task/{task['id']}"}
    for changes in ({"basedOn": [wrong]}, {"result": [wrong]}, {"subject": wrong}):
        answer = await world.upload(helpers.report(patient.partition("/")[2], line["id"], **changes))
        assert answer.status_code == 422
        assert "reference-type" in helpers.diagnostics(answer)
    for changes in ({"subject": wrong}, {"specimen": wrong}):
        assert "reference-type" in helpers.diagnostics(await world.upload(helpers.observation(**changes)))


async def test_report_subject_must_match_lines_patient(world, helpers):
    line, other = (await world.created_order())["ProcedureRequest"][0], await world.patient()
    answer = await world.upload(helpers.report(other, line["id"]))
    assert answer.status_code == 422
    assert "report-patient" in helpers.diagnostics(answer)


async def test_task_error_text_required_in_output_value_string(world, helpers):
    task = (await world.created_order())["Task"][1]
    for output in ([{"type": {"text": "error"}}], [{"valueString": ""}], {"valueString": "x"}, "x"):
        answer = await world.client.put(
            f"/fhir/Task/{task['id']}",
            json=task | {"status": "cancelled", "output": output},
            headers=world.laboratory | {"If-Match": 'W/"1"'},
        )
        assert answer.status_code == 422
        assert "Task.output" in helpers.diagnostics(answer)


async def test_number_out_of_range_returns_400(world, helpers):
    answer = await world.client.post(
        "/fhir/Observation",
        content='{"resourceType": "Observation", "valueQuantity": {"value": 1e99999999999999999999}}',
        headers=world.laboratory | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert "exponent" in helpers.diagnostics(answer)
