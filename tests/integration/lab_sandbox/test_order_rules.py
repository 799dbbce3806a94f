"""Order rules 1 to 5 and the rules of each resource: a rejection names element and rule, and nothing is stored."""

import copy

import httpx
import pytest

from tests.integration.lab_sandbox.world import (
    BASE,
    DROP,
    LAB,
    diagnostics,
    find_accepted,
    grant,
    local_urn,
    order_bundle,
    patient,
)

CONTRACT = f"{LAB}/contract"
STUDY = "2.code.coding.0.code"
PEOPLE = {"identifier": {"system": "urn:people", "value": "1"}}


def by_code(code):
    return [{"identifier": {"system": CONTRACT, "value": code}}]


async def test_rule_1_lines_share_requisition(world):
    rows = [
        ("4.requisition", "one-requisition", {"4.requisition.value": "another"}),
        ("2.requisition", "requisition", {"2.requisition": DROP}),
    ]
    assert await find_accepted(world, rows) == []


async def test_rule_1_lines_share_contract(world):
    rows = [("4.supportingInfo", "one-contract", {"4.supportingInfo.0.identifier.value": "C-200"})]
    assert await find_accepted(world, rows) == []


async def test_rule_1_lines_share_contract_link_type(world):
    rows = [("4.supportingInfo", "one-contract-link-type", {"4.supportingInfo": [{"reference": "contract/contract-100"}]})]
    assert await find_accepted(world, rows) == []
    for link in ("contract/contract-100", f"{BASE}fhir/Contract/contract-100"):
        assert (await world.order(change={"2,4.supportingInfo": [{"reference": link}]})).status_code == 200


async def test_contract_must_be_linked_known_and_own(world):
    links = {
        "contract-link": None,
        "contract-known": by_code("C-404"),
        "contract-party": by_code("C-900"),
        "contract-known ": [{"reference": "contract/contract-404"}],
    }
    rows = [("2.supportingInfo", rule.strip(), {"2,4.supportingInfo": info}) for rule, info in links.items()]
    assert await find_accepted(world, rows) == []


async def test_rule_2_two_specimen_types_need_two_items(world):
    choice = [{"specimen_code": 108}, {"specimen_code": 112}]
    items = [{"id": f"001.00{number}", "multiple_specimen": number == 1, "specimen": choice} for number in range(2)]
    world.lab.responses["/api/nomenclature"] = httpx.Response(200, json=items)
    await world.get("/nomenclature?contract=C-100", world.clinic)

    def second_type(line):
        def change(bundle):
            specimen = copy.deepcopy(bundle["entry"][1]) | {"fullUrl": local_urn()}
            specimen["resource"]["type"]["coding"][0]["code"] = "112"
            bundle["entry"].append(specimen)
            bundle["entry"][line]["resource"]["specimen"].append({"reference": specimen["fullUrl"]})

        return change

    assert await find_accepted(world, [("2.specimen", "one-specimen-type", second_type(2))]) == []
    assert (await world.order(change=second_type(4))).status_code == 200


async def test_rule_3_special_studies_need_second_barcode(world):
    box = "1.container.0.identifier"

    def labelled(study, second):
        return {STUDY: study, box: lambda own: [*own, {"system": f"{LAB}/second-labels", "value": second}]}

    for study, second in (("042.036", "1234-5678"), ("042.075", "1234-5678"), ("042.076", "123-456-789")):
        assert (await world.order(change=labelled(study, second))).status_code == 200, study
    wrong = [("042.036", "123-456-789"), ("042.075", "1234-567"), ("042.076", "1234-5678")]
    changes = [{STUDY: "042.036"}, *(labelled(*each) for each in wrong)]
    rows = [("1.container[0].identifier", "two-barcodes", each) for each in changes]
    assert await find_accepted(world, rows) == []


async def test_rule_4_follow_up_alone_with_old_number(world):
    """The follow-up study is ordered alone, with the number of the earlier order; beside other studies it needs none."""

    def follow_up(number):
        return {STUDY: "190.1558", "2.basedOn": [{"identifier": {"system": f"{LAB}/mis", "value": number}}]}

    assert (await world.order(1, follow_up("12345-ABCDE-12345678"))).status_code == 200
    assert (await world.order(2, {STUDY: "190.1558"})).status_code == 200
    rows = [
        ("2.basedOn[0]", "follow-up-number", follow_up("12345-ABCDE-1234567")),
        ("2.basedOn", "follow-up-number", {STUDY: "190.1558"}),
    ]
    assert await find_accepted(world, rows, lines=1) == []


async def test_rule_5_if_none_exist_keeps_identifiers_unique(world):
    bundle = order_bundle(await world.patient(), 3)
    identifier = bundle["entry"][2]["resource"]["identifier"][0]
    header = {"If-None-Exist": f"identifier={identifier['system']}|{identifier['value']}"}

    async def send(**more):
        return await world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic | more)

    first, counts = await send(**header), world.counts()
    again = await send(**header)
    assert first.status_code == again.status_code == 200
    assert world.counts() == counts
    ids = [{entry["resource"]["id"] for entry in answer.json()["entry"]} for answer in (first, again)]
    assert ids[0] == ids[1]
    await send()
    several = await send(**header)
    assert several.status_code == 412
    assert "If-None-Exist" in diagnostics(several)


def without(kind):
    def change(bundle):
        bundle["entry"] = [one for one in bundle["entry"] if one["resource"]["resourceType"] != kind]

    return change


def bundle_level(**fields):
    return lambda bundle: bundle.update(fields)


def entry_level(number, **fields):
    return lambda bundle: bundle["entry"][number].update(fields)


def only(array):
    """The first one in place of an array of it."""
    return array[0]


def ordered_for_tube(bundle):
    tube = {"reference": bundle["entry"][1]["fullUrl"]}
    for number, name in ((1, "subject"), (2, "subject"), (4, "subject"), (6, "source")):
        bundle["entry"][number]["resource"][name] = tube


REQUIRED = [
    ("entry", "order-counts", without("ProcedureRequest")),
    ("entry", "order-counts", without("Specimen")),
    ("entry", "order-counts", without("Task")),
    ("entry[2].resource", "one-task-per-line", without("Task")),
    ("0.status", "task-requested", {"0.status": "completed"}),
    ("0.meta.security", "task-rights", {"0.meta": {}}),
    ("3.partOf", "task-part-of", {"3.partOf": []}),
    ("3.basedOn", "task-based-on", {"3.basedOn": []}),
    ("entry[2].resource", "one-task-per-line", {"3.basedOn": []}),
    ("2.status", "line-status", {"2.status": "draft"}),
    ("2.code", "line-code", {"2.code": {"text": "x"}}),
    ("2.occurrenceDateTime", "line-moment", {"2.occurrenceDateTime": "2026-01-05T08:00:00"}),
    ("2.subject", "subject", {"2.subject": {}}),
    ("2.specimen[0]", "line-specimen", {"2.specimen": [{"reference": f"urn:uuid:{'0' * 8}-0000-0000-0000-{'0' * 12}"}]}),
    ("2.specimen", "line-specimen", {"2.specimen": DROP}),
    ("2.specimen", "line-specimen", {"2.specimen": []}),
    ("2.meta.security[0].code", "rights-guid", {"2.meta": grant("read", guid="nobody")}),
    ("2.meta.security[0]", "rights-shape", {"2.meta": grant("rule")}),
    ("1.type", "specimen-type", {"1.type": {}}),
    ("1.extension", "specimen-extension", {"1.extension": []}),
    ("1.container", "specimen-container", {"1.container": DROP}),
    ("1.container", "specimen-container", {"1.container": []}),
    ("1.container[0].identifier", "container-barcode", {"1.container": [{}]}),
    ("1.container[0].type", "container-type", {"1.container": [{}]}),
    ("1.container[0].specimenQuantity.value", "container-quantity", {"1.container": [{}]}),
    ("1.collection", "specimen-collection", {"1.collection": DROP}),
    ("1.collection", "specimen-collection", {"1.collection": {}}),
    ("1.collection", "specimen-collection", {"1.collection": "today"}),
    ("1.collection.collectedDateTime", "specimen-collected", {"1.collection.collectedDateTime": "yesterday"}),
    ("1.collection.method", "specimen-method", {"1.collection.method": {}}),
    ("6.status", "answers-status", {"6.status": "in-progress"}),
    ("6.subject", "answers-subject", {"6.subject": {"reference": "patient/1"}}),
    ("6.source", "answers-source", {"6.source": None}),
    ("6.source", "answers-source", {"6.source": {}}),
    ("6.item[0].item[0].linkId", "answers-link-id", {"6.item": [{"linkId": "1", "item": [{"answer": [{}]}]}]}),
    ("6.item[0].item[0].answer[0].value[x]", "answers-value", {"6.item": [{"linkId": "1", "item": [{"answer": [{}]}]}]}),
    ("2.identifier[0]", "line-identifier", {"2.identifier": [{"value": "1"}]}),
    ("type", "bundle-type", bundle_level(type="transaction")),
    ("entry", "bundle-entry", bundle_level(entry=[])),
    ("entry[0].fullUrl", "bundle-full-url", entry_level(0, fullUrl="http://x/1")),
    ("entry[1].fullUrl", "bundle-full-url", lambda bundle: bundle["entry"][1].update(fullUrl=bundle["entry"][0]["fullUrl"])),
    ("0.resourceType", "bundle-types", {"0.resourceType": "Patient"}),
    ("entry[7].resource", "bundle-entry", lambda bundle: bundle["entry"].append(7)),
    # arrays of the tables
    ("2.identifier", "array", {"2.identifier": only}),
    ("2.supportingInfo", "array", {"2.supportingInfo": only}),
    ("2.specimen", "array", {"2.specimen": only}),
    ("2.code.coding", "array", {"2.code.coding": only}),
    ("2.note", "array", {"2.note": "please"}),
    ("3.basedOn", "array", {"3.basedOn": only}),
    ("3.partOf", "array", {"3.partOf": only}),
    ("0.input", "array", {"0.input": "sms"}),
    ("1.container", "array", {"1.container": only}),
    ("1.container[0].identifier", "array", {"1.container.0.identifier": only}),
    ("6.item", "array", {"6.item": only}),
    ("6.item[0].answer", "array", {"6.item.0.answer": only}),
]  # fmt: skip


@pytest.mark.parametrize("part", range(4))
async def test_order_required_fields_checked(world, part):
    assert await find_accepted(world, REQUIRED[part::4]) == []


async def test_order_has_one_patient_that_can_be_read(world):
    other, hidden = f"patient/{await world.patient()}", patient(meta={})
    unseen = (await world.client.post("/fhir/Patient", json=hidden, headers=world.stranger)).json()["id"]
    rows = [
        ("1.subject", "one-patient", {"1.subject.reference": other}),
        ("6.source", "one-patient", {"6.source.reference": other}),
        ("6.source.reference", "reference-known", {"6.source.reference": "patient/404"}),
        ("6.source.reference", "reference-right", {"6.source.reference": f"patient/{unseen}"}),
        *((each, "reference-type", ordered_for_tube) for each in ("1.subject", "2.subject", "4.subject", "6.source")),
    ]
    assert await find_accepted(world, rows) == []


async def test_all_problems_reported_at_once(world):
    change = {"1.extension": [], "4.status": "draft"}
    rows = [("1.extension", "specimen-extension", change), ("4.status", "line-status", change)]
    assert await find_accepted(world, rows) == []


async def test_rule_can_be_disabled(world_factory):
    world = world_factory(rules={"off": ("line-status",)})
    assert (await world.order(change={"2.status": "draft"})).status_code == 200


async def test_other_ways_to_name_the_patient_accepted(world):
    """By a global identifier, and by another spelling of the reference."""
    answer = await world.order(change={"1,2,4.subject": PEOPLE, "6.source": PEOPLE})
    assert answer.status_code == 200, answer.text

    def in_full(reference):
        return f"{BASE}fhir/Patient/{reference.partition('/')[2]}"

    assert (await world.order(change={"2.subject.reference": in_full})).status_code == 200


async def test_local_references_replaced_everywhere(world):
    """Also where no table names them; the client's own identifiers, which may be such addresses, stay."""

    def change(bundle):
        urls = [one["fullUrl"] for one in bundle["entry"]]
        task, tube, line, *_, answers = (one["resource"] for one in bundle["entry"])
        line["supportingInfo"].append({"reference": urls[6]})
        line["identifier"] = [{"system": "urn:ietf:rfc:3986", "value": urls[2]}]
        for number in (2, 4):
            bundle["entry"][number]["resource"]["requisition"] = {"system": "urn:ietf:rfc:3986", "value": urls[0]}
        task["focus"] = {"reference": urls[6]}
        task["extension"] = [{"url": "urn:about", "valueUri": urls[2]}]
        tube["parent"] = [{"reference": urls[1]}]
        answers["extension"] = [{"url": "urn:x", "valueReference": {"reference": urls[1]}}]
        shouted = {"reference": urls[2].upper().replace("URN:UUID", "urn:uuid")}
        answers["item"][0]["item"] = [{"linkId": "1.1", "text": "Line", "answer": [{"valueReference": shouted}]}]

    created = await world.created_order(change=change)
    (task, *_), (tube,), (line, other), (answers,) = created.values()
    line_, tube_, answers_ = (f"{one['resourceType'].lower()}/{one['id']}" for one in (line, tube, answers))
    assert line["supportingInfo"][1] == task["focus"] == {"reference": answers_}
    assert task["extension"][0]["valueUri"] == answers["subject"]["reference"] == line_
    assert tube["parent"] == line["specimen"] == other["specimen"] == [{"reference": tube_}]
    assert answers["extension"][0]["valueReference"] == {"reference": tube_}
    assert answers["item"][0]["item"][0]["answer"][0]["valueReference"] == {"reference": line_}
    assert line["identifier"][0]["value"].startswith("urn:uuid:")
    assert line["requisition"]["value"].startswith("urn:uuid:")


def named(family, *given):
    return {"name": [{"family": family, "given": list(given)}]}


async def test_patient_required_fields_checked(world):
    rows = [
        ({"name": []}, ["name[0].family", "name[0].given[0]", "name[0].given[1]"]),
        (named("Sample", "Anna"), ["Patient.name[0].given[1]"]),
        ({"gender": None}, ["Patient.gender"]),
        ({"birthDate": None}, ["Patient.birthDate"]),
        ({"birthDate": "1980-02-30"}, ["Patient.birthDate"]),
        (named("123456789", "-", "-"), ["Patient.name[0].family", "anonymous"]),
        (named("1234567890", "-", "x"), ["anonymous"]),
        (named("١٢٣٤٥٦٧٨٩٠", "-", "-"), ["anonymous"]),
        ({"telecom": [{"system": "fax", "value": "1"}]}, ["Patient.telecom[0]"]),
        ({"telecom": 5}, ["Patient.telecom"]),
    ]
    for changes, names in rows:
        answer = await world.client.post("/fhir/Patient", json=patient(**changes), headers=world.clinic)
        assert answer.status_code == 422, changes
        assert [name for name in names if name not in diagnostics(answer)] == []


async def test_anonymous_patient_accepted(world):
    assert await world.patient(**named("0123456789", "-", "-"))
