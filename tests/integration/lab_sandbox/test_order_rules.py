"""Order rules 1 to 5 and the rules of each resource: a rejection names element and rule, and nothing is stored."""

import copy

import httpx
import pytest


async def assert_rejected(world, helpers, change, *names, lines=2):
    """The changed order is rejected, the diagnostics contain all names, and nothing was stored."""
    patient = await world.patient()
    bundle = helpers.order_bundle(patient, lines)
    change(bundle)
    before = world.app.state.service.store.counts()
    answer = await world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic)
    assert answer.status_code == 422, answer.text
    text = helpers.diagnostics(answer)
    for name in names:
        assert name in text
    assert world.app.state.service.store.counts() == before


def first(bundle, kind):
    return next(one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind)


def every(bundle, kind):
    return [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]


async def test_rule_1_lines_share_requisition(world, helpers):
    def change(bundle):
        every(bundle, "ProcedureRequest")[1]["requisition"] = {"system": "urn:clinic:orders", "value": "another"}

    await assert_rejected(world, helpers, change, "Bundle.entry[4].resource.requisition", "one-requisition")
    await assert_rejected(world, helpers, lambda bundle: first(bundle, "ProcedureRequest").pop("requisition"), "requisition")


async def test_rule_1_lines_share_contract(world, helpers):
    def change(bundle):
        every(bundle, "ProcedureRequest")[1]["supportingInfo"][0]["identifier"]["value"] = "C-200"

    await assert_rejected(world, helpers, change, "Bundle.entry[4].resource.supportingInfo", "one-contract)")


async def test_rule_1_lines_share_contract_link_type(world, helpers):
    def change(bundle):
        every(bundle, "ProcedureRequest")[1]["supportingInfo"] = [{"reference": "contract/contract-100"}]

    await assert_rejected(world, helpers, change, "one-contract-link-type")


@pytest.mark.parametrize("link", ["contract/contract-100", "http://exchange.test/fhir/Contract/contract-100"])
async def test_rule_1_contract_link_by_reference_accepted(world, link):
    def change(bundle):
        for one in every(bundle, "ProcedureRequest"):
            one["supportingInfo"] = [{"reference": link}]

    answer = await world.order(change=change)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("info", "rule"),
    [
        (None, "contract-link"),
        ([{"identifier": {"system": "http://codes.lab.example/contract", "value": "C-404"}}], "contract-known"),
        ([{"identifier": {"system": "http://codes.lab.example/contract", "value": "C-900"}}], "contract-party"),
        ([{"reference": "contract/contract-404"}], "contract-known"),
    ],
)
async def test_contract_must_be_linked_known_and_own(world, helpers, info, rule):
    def change(bundle):
        for one in every(bundle, "ProcedureRequest"):
            one["supportingInfo"] = copy.deepcopy(info)

    await assert_rejected(world, helpers, change, "supportingInfo", rule)


async def test_rule_2_two_specimen_types_need_two_items(world, helpers):
    """A line with two specimen types is rejected unless its item allows several specimens."""
    choice = [{"specimen_code": 108}, {"specimen_code": 112}]
    world.lab.responses["/api/nomenclature"] = httpx.Response(
        200,
        json=[
            {"id": "001.000", "multiple_specimen": False, "specimen": choice},
            {"id": "001.001", "multiple_specimen": True, "specimen": choice},
        ],
    )
    await world.client.get("/nomenclature?contract=C-100", headers=world.clinic)

    def second_type(bundle, line):
        specimen = copy.deepcopy(next(one for one in bundle["entry"] if one["resource"]["resourceType"] == "Specimen"))
        specimen["fullUrl"] = helpers.local()
        specimen["resource"]["type"]["coding"][0]["code"] = "112"
        bundle["entry"].append(specimen)
        every(bundle, "ProcedureRequest")[line]["specimen"].append({"reference": specimen["fullUrl"]})

    await assert_rejected(world, helpers, lambda bundle: second_type(bundle, 0), "specimen", "one-specimen-type")
    answer = await world.order(change=lambda bundle: second_type(bundle, 1))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("study", "second", "is_valid"),
    [
        ("042.036", "1234-5678", True),
        ("042.036", "123-456-789", False),
        ("042.036", None, False),
        ("042.075", "1234-5678", True),
        ("042.075", "1234-567", False),
        ("042.076", "123-456-789", True),
        ("042.076", "1234-5678", False),
    ],
)
async def test_rule_3_special_studies_need_second_barcode(world, helpers, study, second, is_valid):
    def change(bundle):
        first(bundle, "ProcedureRequest")["code"]["coding"][0]["code"] = study
        if second:
            box = first(bundle, "Specimen")["container"][0]
            box["identifier"].append({"system": "http://codes.lab.example/second-labels", "value": second})

    if is_valid:
        assert (await world.order(change=change)).status_code == 200
    else:
        await assert_rejected(world, helpers, change, "Bundle.entry[1].resource.container", study, "two-barcodes")


@pytest.mark.parametrize(("number", "is_valid"), [("12345-ABCDE-12345678", True), ("12345-ABCDE-1234567", False), (None, False)])
async def test_rule_4_follow_up_alone_with_old_number(world, helpers, number, is_valid):
    """The follow-up study is ordered alone, with the number of the earlier order."""

    def change(bundle):
        line = first(bundle, "ProcedureRequest")
        line["code"]["coding"][0]["code"] = "190.1558"
        if number:
            line["basedOn"] = [{"identifier": {"system": "http://codes.lab.example/mis", "value": number}}]

    if is_valid:
        assert (await world.order(1, change)).status_code == 200
    else:
        await assert_rejected(world, helpers, change, "Bundle.entry[2].resource.basedOn", "follow-up-number", lines=1)


async def test_rule_4_ignores_other_studies(world):
    def change(bundle):
        first(bundle, "ProcedureRequest")["code"]["coding"][0]["code"] = "190.1558"

    assert (await world.order(2, change)).status_code == 200


async def test_rule_5_if_none_exist_keeps_identifiers_unique(world, helpers):
    bundle = helpers.order_bundle(await world.patient(), 3)
    identifier = first(bundle, "ProcedureRequest")["identifier"][0]
    header = {"If-None-Exist": f"identifier={identifier['system']}|{identifier['value']}"}
    first_answer = await world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic | header)
    counts = world.app.state.service.store.counts()
    second_answer = await world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic | header)
    assert first_answer.status_code == second_answer.status_code == 200
    assert world.app.state.service.store.counts() == counts

    def ids(answer):
        return {entry["resource"]["id"] for entry in answer.json()["entry"]}

    assert ids(first_answer) == ids(second_answer)
    await world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic)
    third = await world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic | header)
    assert third.status_code == 412
    assert "If-None-Exist" in helpers.diagnostics(third)


def remove_all(kind):
    def change(bundle):
        bundle["entry"] = [one for one in bundle["entry"] if one["resource"]["resourceType"] != kind]

    return change


def update_resource(kind, number, **fields):
    def change(bundle):
        every(bundle, kind)[number].update(copy.deepcopy(fields))

    return change


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (remove_all("ProcedureRequest"), ["at least one ProcedureRequest", "order-counts"]),
        (remove_all("Specimen"), ["at least one Specimen", "order-counts"]),
        (remove_all("Task"), ["order-counts", "one-task-per-line"]),
        (update_resource("Task", 0, status="completed"), ["Bundle.entry[0].resource.status", "task-requested"]),
        (update_resource("Task", 0, meta={}), ["Bundle.entry[0].resource.meta.security", "task-rights"]),
        (update_resource("Task", 1, partOf=[]), ["Bundle.entry[3].resource.partOf", "task-part-of"]),
        (update_resource("Task", 1, basedOn=[]), ["Bundle.entry[3].resource.basedOn", "task-based-on", "one-task-per-line"]),
        (
            update_resource(
                "Task", 0, input=[{"type": {"coding": [{"system": "http://codes.lab.example/notification", "code": "fax"}]}}]
            ),
            ["input[0]", "task-notification"],
        ),
        (update_resource("ProcedureRequest", 0, status="draft"), ["Bundle.entry[2].resource.status", "line-status"]),
        (update_resource("ProcedureRequest", 0, code={"text": "x"}), ["Bundle.entry[2].resource.code", "line-code"]),
        (update_resource("ProcedureRequest", 0, occurrenceDateTime="2026-01-05T08:00:00"), ["occurrenceDateTime", "line-moment"]),
        (update_resource("ProcedureRequest", 0, subject={}), ["Bundle.entry[2].resource.subject", "subject"]),
        (
            update_resource("ProcedureRequest", 0, specimen=[{"reference": "urn:uuid:00000000-0000-0000-0000-000000000000"}]),
            ["specimen[0]", "line-specimen", "local-reference"],
        ),
        (
            update_resource("ProcedureRequest", 0, meta={"security": [{"system": "read", "code": "nobody"}]}),
            ["rights-guid", "nobody"],
        ),
        (
            update_resource("ProcedureRequest", 0, meta={"security": [{"system": "rule", "code": "guid-laboratory"}]}),
            ["rights-shape"],
        ),
        (update_resource("Specimen", 0, type={}), ["Bundle.entry[1].resource.type", "specimen-type"]),
        (update_resource("Specimen", 0, extension=[]), ["Bundle.entry[1].resource.extension", "specimen-extension"]),
        (
            update_resource("Specimen", 0, container=[{}]),
            ["container[0].identifier", "container[0].type", "container[0].specimenQuantity.value"],
        ),
        (
            update_resource("Specimen", 0, collection={"collectedDateTime": "yesterday", "method": {}}),
            ["collectedDateTime", "collection.method"],
        ),
        (update_resource("QuestionnaireResponse", 0, status="in-progress"), ["answers-status"]),
        (update_resource("QuestionnaireResponse", 0, subject={"reference": "patient/1"}), ["answers-subject"]),
        (update_resource("QuestionnaireResponse", 0, source=None), ["answers-source"]),
        (lambda bundle: bundle.update(type="transaction"), ["Bundle.type"]),
        (lambda bundle: bundle.update(entry=[]), ["Bundle.entry"]),
        (lambda bundle: bundle["entry"][0].update(fullUrl="http://x/1"), ["Bundle.entry[0].fullUrl"]),
        (lambda bundle: bundle["entry"][1].update(fullUrl=bundle["entry"][0]["fullUrl"]), ["Bundle.entry[1].fullUrl"]),
        (lambda bundle: bundle["entry"][0]["resource"].update(resourceType="Patient"), ["bundle-types"]),
        (lambda bundle: bundle["entry"].append(7), ["Bundle.entry[7].resource"]),
    ],
)
async def test_order_required_fields_checked(world, helpers, change, names):
    await assert_rejected(world, helpers, change, *names)


async def test_order_has_one_patient(world, helpers):
    other = await world.patient()
    await assert_rejected(
        world, helpers, update_resource("Specimen", 0, subject={"reference": f"patient/{other}"}), "one-patient"
    )


async def test_missing_or_unreadable_references_rejected(world, helpers):
    answer = await world.client.post("/fhir/Patient", json=helpers.patient(meta={}), headers=world.stranger)
    await assert_rejected(
        world, helpers, update_resource("QuestionnaireResponse", 0, source={"reference": "patient/404"}), "reference-known"
    )
    await assert_rejected(
        world,
        helpers,
        update_resource("QuestionnaireResponse", 0, source={"reference": f"patient/{answer.json()['id']}"}),
        "reference-right",
    )


async def test_all_problems_reported_at_once(world, helpers):
    def change(bundle):
        update_resource("Specimen", 0, extension=[])(bundle)
        update_resource("ProcedureRequest", 1, status="draft")(bundle)

    await assert_rejected(world, helpers, change, "specimen-extension", "line-status")


async def test_rule_can_be_disabled(world_factory):
    world = world_factory(rules={"off": ("line-status",)})
    assert (await world.order(change=update_resource("ProcedureRequest", 0, status="draft"))).status_code == 200


async def test_global_patient_identifier_replaces_patient(world):
    def change(bundle):
        for one in every(bundle, "ProcedureRequest") + every(bundle, "Specimen"):
            one["subject"] = {"identifier": {"system": "urn:people", "value": "1"}}
        first(bundle, "QuestionnaireResponse")["source"] = {"identifier": {"system": "urn:people", "value": "1"}}

    answer = await world.order(change=change)
    assert answer.status_code == 200, answer.text


async def test_local_references_replaced_in_every_place(world, helpers):
    def change(bundle):
        line = next(one["fullUrl"] for one in bundle["entry"] if one["resource"]["resourceType"] == "ProcedureRequest")
        item = first(bundle, "QuestionnaireResponse")["item"][0]
        item["item"] = [
            {
                "linkId": "1.1",
                "text": "Line",
                "answer": [{"valueReference": {"reference": line.upper().replace("URN:UUID", "urn:uuid")}}],
            }
        ]
        first(bundle, "Task")["extension"] = [{"url": "urn:about", "valueUri": line}]

    created = (await world.order(change=change)).json()
    line = next(one["resource"]["id"] for one in created["entry"] if one["resource"]["resourceType"] == "ProcedureRequest")
    answers = first(created, "QuestionnaireResponse")
    assert answers["subject"]["reference"] == f"procedurerequest/{line}"
    assert answers["item"][0]["item"][0]["answer"][0]["valueReference"]["reference"] == f"procedurerequest/{line}"
    assert first(created, "Task")["extension"][0]["valueUri"] == f"procedurerequest/{line}"


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"name": []}, ["name[0].family", "name[0].given[0]", "name[0].given[1]"]),
        ({"name": [{"family": "Sample", "given": ["Anna"]}]}, ["Patient.name[0].given[1]"]),
        ({"gender": None}, ["Patient.gender"]),
        ({"birthDate": None}, ["Patient.birthDate"]),
        ({"birthDate": "1980-02-30"}, ["Patient.birthDate"]),
        ({"name": [{"family": "123456789", "given": ["-", "-"]}]}, ["Patient.name[0].family", "anonymous"]),
        ({"name": [{"family": "1234567890", "given": ["-", "x"]}]}, ["anonymous"]),
        ({"name": [{"family": "١٢٣٤٥٦٧٨٩٠", "given": ["-", "-"]}]}, ["anonymous"]),
        ({"telecom": [{"system": "fax", "value": "1"}]}, ["Patient.telecom[0]"]),
        ({"telecom": 5}, ["Patient.telecom"]),
    ],
)
async def test_patient_required_fields_checked(world, helpers, changes, names):
    answer = await world.client.post("/fhir/Patient", json=helpers.patient(**changes), headers=world.clinic)
    assert answer.status_code == 422
    for name in names:
        assert name in helpers.diagnostics(answer)


async def test_anonymous_patient_accepted(world):
    assert await world.patient(name=[{"family": "0123456789", "given": ["-", "-"]}])
