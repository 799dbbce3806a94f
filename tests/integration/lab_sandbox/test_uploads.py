"""What a laboratory uploads: the fields, value forms and reference types of the tables, and every digit as it was."""

import json

from tests.integration.lab_sandbox.world import diagnostics, observation, patient, problems, report

LOCAL = f"urn:uuid:{'0' * 8}-0000-0000-0000-{'0' * 12}"
OTHER_SYSTEM = {"coding": [{"system": "urn:local", "code": "x"}]}


def valued(**value):
    return {key: one for key, one in observation().items() if key != "valueQuantity"} | value


async def test_observation_required_fields_checked(world):
    two_values = {"valueQuantity": 1, "valueBoolean": True}
    for body, element in (
        (observation(status="cancelled"), "status"),
        (observation(code=OTHER_SYSTEM), "code"),
        (observation(valueString="two values"), "value[x]"),
        (observation(**two_values), "value[x]"),
        (observation(issued="today"), "issued"),
        (observation(referenceRange=["120-160"]), "referenceRange[0]"),
        (observation(referenceRange=[{"low": "120"}]), "referenceRange[0].low"),
        (observation(specimen={"reference": "specimen/404"}), "specimen.reference"),
        (observation(specimen={"reference": LOCAL}), "specimen.reference"),
        (valued(valueQuantity="134"), "valueQuantity"),
        (valued(valueQuantity={"value": "134"}), "valueQuantity"),
        (valued(valueCodeableConcept="positive"), "valueCodeableConcept"),
        (valued(valueString=134), "valueString"),
        (valued(valueTime="25:00:00"), "valueTime"),
        (valued(valueDateTime="today"), "valueDateTime"),
        (valued(valuePeriod=[]), "valuePeriod"),
    ):
        found = {path for path, _ in problems(await world.upload(body))}
        assert any(path.startswith(f"Observation.{element}") for path in found), (element, found)


async def test_report_required_fields_checked(world):
    order = await world.created_order()
    line, wrong = order["ProcedureRequest"][0], {"reference": f"task/{order['Task'][0]['id']}"}
    for changes, element, rule in (
        ({"status": "amended"}, "status", ""),
        ({"code": {}}, "code", ""),
        ({"subject": None}, "subject", ""),
        ({"effectiveDateTime": None}, "effectiveDateTime", ""),
        ({"issued": "x"}, "issued", ""),
        ({"result": [{}]}, "result[0]", ""),
        ({"basedOn": {"reference": "x"}}, "basedOn", ""),
        ({"presentedForm": [{}]}, "presentedForm[0].url", ""),
        ({"basedOn": [wrong]}, "basedOn[0]", "reference-type"),
        ({"result": [wrong]}, "result[0]", "reference-type"),
        ({"subject": wrong}, "subject", "reference-type"),
        ({"subject": {"reference": f"patient/{await world.patient()}"}}, "", "report-patient"),
    ):
        found = problems(await world.upload(report(line, **changes)))
        assert any(path.startswith(f"DiagnosticReport.{element}") and rule in named for path, named in found), (changes, found)
    for name in ("subject", "specimen"):
        assert (f"Observation.{name}", "reference-type") in problems(await world.upload(observation(**{name: wrong})))


async def test_result_or_patient_of_the_other_side_refused(world):
    line = (await world.created_order())["ProcedureRequest"][0]
    binary = {"resourceType": "Binary", "contentType": "application/pdf", "content": "AAAA"}
    for body, caller in (
        (observation(), world.clinic),
        (report(line), world.clinic),
        (binary, world.clinic),
        (patient(), world.laboratory),
    ):
        answer = await world.client.post(f"/fhir/{body['resourceType']}", json=body, headers=caller)
        assert answer.status_code == 403, body["resourceType"]
        assert diagnostics(answer)


async def test_decimals_keep_digits_both_ways(world):
    text = json.dumps(observation()).replace("134", "1.20").replace("160", "123456789012345678901234567890.10")
    headers = world.laboratory | {"Content-Type": "application/fhir+json"}
    made = await world.client.post("/fhir/Observation", content=text, headers=headers)
    assert made.status_code == 201, made.text
    read = (await world.get(f"/fhir/observation/{made.json()['id']}", world.clinic)).text
    assert '"value":1.20,' in read
    assert '"value":123456789012345678901234567890.10' in read
    huge = text.replace("1.20", "1e99999999999999999999")
    refused = await world.client.post("/fhir/Observation", content=huge, headers=headers)
    assert refused.status_code == 400
    assert "exponent" in diagnostics(refused)


async def test_order_level_report_references_all_lines(world):
    lines = (await world.created_order(3))["ProcedureRequest"]
    based_on = [{"reference": f"procedurerequest/{one['id']}"} for one in lines]
    absolute = [*based_on[:2], {"reference": f"http://exchange.test/fhir/ProcedureRequest/{lines[2]['id']}"}]
    made = await world.upload(report(lines[0], basedOn=absolute, presentedForm=[{"url": "fhir/Binary/1"}]))
    for each in based_on:
        found = await world.found(f"/fhir/diagnosticreport?based-on={each['reference']}", world.clinic)
        assert [one["id"] for one in found] == [made.json()["id"]]
