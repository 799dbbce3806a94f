import asyncio
from datetime import timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
import respx

from lab_agent.shared import errors, exact_json
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier
from tests.harness.clock import VirtualClock
from tests.integration.exchange.conftest import BASE, OURS, Service, bundle, task, tokens


def rid(value: str) -> ResourceId:
    return ResourceId(value)


async def test_every_call_observed_by_name_without_ids(service: Service) -> None:
    service.get(f"{BASE}fhir/task/t1").respond(json=task(1))
    service.get(f"{BASE}fhir/task/t2").respond(404)
    service.put(f"{BASE}fhir/Task/t1").mock(side_effect=httpx.ReadTimeout)
    output: list[tuple[str, str]] = []
    client = service.client(
        heard=lambda operation, outcome, seconds: output.append((operation, outcome)) if seconds >= 0 else None
    )
    await client.read("Task", rid("t1"))
    with pytest.raises(errors.ResourceNotReadable):
        await client.read("Task", rid("t2"))
    with pytest.raises(errors.OutcomeUnknown):
        await client.update("Task", rid("t1"), task(1), version="1")
    assert output == [("GET Task", "ok"), ("GET Task", "not_readable"), ("PUT Task", "outcome_unknown")]


async def test_every_call_carries_bearer_token(service: Service) -> None:
    route = service.route(url__startswith=BASE).respond(json=task(1), headers={"ETag": 'W/"2"'})
    client = service.client()
    await client.read("Task", rid("t1"))
    await client.update("Task", rid("t1"), task(1), version="1")
    await client.create("Task", task(1), if_none_exist=Identifier(system="urn:x", value="1"))
    assert [call.request.method for call in route.calls] == ["GET", "PUT", "POST"]
    assert {call.request.headers["authorization"] for call in route.calls} == {"Bearer t1"}


# --- searches


async def test_poll_url_matches_interface(service: Service) -> None:
    route = service.get(url__startswith=BASE).respond(json=bundle(task(1)))
    assert [found["id"] for found in await service.client().requested_order_tasks()] == ["t1"]
    request = route.calls.last.request
    assert str(request.url) == f"{BASE}fhir/task?status=requested&code=OrderProcessingTask"
    assert request.headers["authorization"] == "Bearer t1"
    assert request.headers["cache-control"] == "no-cache"


async def test_line_task_search_sends_page_size(service: Service) -> None:
    route = service.get(url__startswith=BASE).respond(json=bundle())
    await service.client(page_size=5).line_tasks(rid("a/b"))
    assert str(route.calls.last.request.url) == f"{BASE}fhir/task?part-of=task/a%2Fb&_count=5"


ELSEWHERE = {"coding": [{"code": "BillingTask"}]}


@pytest.mark.parametrize(
    "stray", [{"code": ELSEWHERE}, {"code": {}}, {"status": "completed"}, {"status": "on-hold", "code": ELSEWHERE}]
)
async def test_poll_leaves_aside_what_was_not_asked_for(service: Service, stray: dict[str, Any]) -> None:
    service.get(url__startswith=BASE).respond(json=bundle(task(1), task(2, **stray)))
    assert [found["id"] for found in await service.client().requested_order_tasks()] == ["t1"]


async def test_responses_found_twice_count_once(service: Service) -> None:
    answers = {"resourceType": "QuestionnaireResponse", "id": "q1", "subject": {"reference": "ProcedureRequest/p1"}}
    service.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(json=bundle(answers, answers))
    assert await service.client().questionnaire_responses([rid("p1"), rid("p1")]) == (answers,)


async def test_contract_ids_cached_once_known(service: Service) -> None:
    contract = {"resourceType": "Contract", "id": "c1"}
    route = service.get(url__startswith=f"{BASE}fhir/Contract")
    route.side_effect = [httpx.Response(200, json=bundle()), httpx.Response(200, json=bundle(contract))]
    client = service.client()
    assert await client.contract_ids("C-1&x") == ()
    assert await client.contract_ids("C-1&x") == ("c1",)
    assert await client.contract_ids("C-1&x") == ("c1",)
    assert route.call_count == 2
    assert dict(route.calls.last.request.url.params) == {"identifier": "https://codes.example/contract|C-1&x"}


# --- reads


ALTERED_ETAGS = ['W/"3--gzip"', 'W/"3-gzip"', '"3;gzip"', 'W/"3-br"', '"df-3"', "3", 'W/""']
"""What a gateway makes of the ETag of version 3."""


@pytest.mark.parametrize("etag", ALTERED_ETAGS)
async def test_altered_etag_leaves_the_version(service: Service, etag: str) -> None:
    """Reads, both writes and a conditional create: the version is what the resource says, or its Location."""
    answer = {"json": task(1, version=3), "headers": {"ETag": etag}}
    service.get(f"{BASE}fhir/task/t1").respond(**answer)
    service.put(f"{BASE}fhir/Task/t1").respond(**answer)
    made = service.post(f"{BASE}fhir/Task").respond(201, **answer)
    client = service.client()
    saved = [await client.read("Task", rid("t1")), await client.update("Task", rid("t1"), task(1), version="2")]
    saved += [await client.create("Task", task(1)), await client.create("Task", task(1), if_none_exist=OURS)]
    made.respond(201, headers={"ETag": etag, "Location": f"{BASE}fhir/Task/t1/_history/3"})
    saved.append(await client.create("Task", task(1)))
    assert [each.version for each in saved] == ["3"] * 5


async def test_altered_etag_is_found_in_a_task_or_contract(service: Service) -> None:
    altered = {"ETag": ALTERED_ETAGS[0]}
    page = service.get(f"{BASE}fhir/task", params={"status": "requested"}).respond(json=bundle(task(1)))
    service.get(f"{BASE}fhir/task/t1").respond(json=task(1, version=3), headers=altered)
    contract = {"resourceType": "Contract", "id": "c1", "meta": {"versionId": "3"}}
    service.get(f"{BASE}fhir/Contract").respond(json=bundle(contract))
    read = service.get(f"{BASE}fhir/contract/c1").respond(json=contract, headers=altered)
    client = service.client(contracts={"C-1": {}})
    assert str(await client.altered_etag()).endswith("for version 3")
    page.respond(json=bundle())
    assert str(await client.altered_etag()).endswith("for version 3")
    for answer in ({"json": contract, "headers": {"ETag": 'W/"3"'}}, {"status_code": 403}):
        read.respond(**answer)
        assert await client.altered_etag() is None


@pytest.mark.parametrize(
    ("etag", "version", "altered"),
    [
        *((each, "3", True) for each in ('W/"3-gzip"', '"3--gzip"', 'W/"3;br"', '"3-deflate"', '"3-GZIP"')),
        *(('W/"3"', "3", False), ('"abc-1"', "abc-1", False), ('"gzip"', "gzip", False), ('"3-x"', "3-x", False)),
    ],
)
async def test_etag_without_another_version_is_read(service: Service, etag: str, version: str, altered: bool) -> None:
    """If-Match never says what a gateway added, and `check` tells of it."""
    service.get(f"{BASE}fhir/task", params={"status": "requested"}).respond(json=bundle(task(1)))
    service.get(f"{BASE}fhir/task/t1").respond(json={**task(1), "meta": {}}, headers={"ETag": etag})
    client = service.client()
    assert (await client.read("Task", rid("t1"))).version == version
    told = await client.altered_etag()
    assert str(told).endswith("for version 3") if altered else told is None


async def test_read_gives_id_and_version_as_texts(service: Service) -> None:
    route, client = service.get(f"{BASE}fhir/task/1"), service.client()
    for found in ({"id": 1}, {"id": " 1 "}, {"id": ["1"], "meta": [{"versionId": 3}]}, {"id": None}):
        route.respond(json={**task(1, version=3), **found})
        saved = await client.read("Task", rid("1"))
        assert (saved.id, saved.body["id"], saved.version) == ("1", "1", "3"), found


async def test_read_returns_version_and_exact_digits(service: Service) -> None:
    text = '{"resourceType":"ProcedureRequest","id":"p1","meta":{"versionId":"3"},"x":1.20,"y":123456789012345678901234567890.10}'
    service.get(f"{BASE}fhir/procedurerequest/p1").respond(text=text, headers={"ETag": 'W/"3"'})
    saved = await service.client().read("ProcedureRequest", rid("p1"))
    assert (saved.id, saved.version) == ("p1", "3")
    assert saved.body["x"] == Decimal("1.20")
    assert exact_json.dumps(saved.body).decode() == text


async def test_read_without_etag_uses_body_version(service: Service) -> None:
    service.get(f"{BASE}fhir/task/t1").respond(json=task(1, version=4))
    assert (await service.client().read("Task", rid("t1"))).version == "4"


async def test_read_of_wrong_resource_rejected(service: Service) -> None:
    service.get(f"{BASE}fhir/patient/p1").respond(json={"resourceType": "Patient", "id": "p2", "meta": {"versionId": "1"}})
    service.put(f"{BASE}fhir/Task/t1").respond(json=task(2))
    with pytest.raises(errors.InvalidResponse):
        await service.client().read("Patient", rid("p1"))
    with pytest.raises(errors.InvalidResponse):
        await service.client().update("Task", rid("t1"), task(1), version="1")


async def test_id_cannot_traverse_paths(service: Service) -> None:
    for resource_id in ("", ".", ".."):
        with pytest.raises(errors.ForeignOrigin):
            await service.client().read("Task", rid(resource_id))
    assert not service.calls


async def test_concurrent_calls_stay_within_limit(service: Service) -> None:
    running = most = 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return httpx.Response(200, json=task(int(request.url.path.rpartition("t")[2])))

    service.get(url__startswith=f"{BASE}fhir/task/").mock(side_effect=slow)
    client = service.client(max_concurrency=3)
    await asyncio.gather(*(client.read("Task", rid(f"t{number}")) for number in range(20)))
    assert most == 3


# --- writes


async def test_conditional_create_encoded_as_query(service: Service) -> None:
    route = service.post(f"{BASE}fhir/Observation").respond(
        201, json={"resourceType": "Observation", "id": "o1"}, headers={"ETag": 'W/"1"'}
    )
    saved = await service.client().create(
        "Observation", {"resourceType": "Observation", "v": Decimal("1.20")}, if_none_exist=OURS
    )
    assert (saved.id, saved.version, saved.created) == ("o1", "1", True)
    request = route.calls.last.request
    header = request.headers["if-none-exist"]
    assert header.isascii()
    assert parse_qs(header) == {"identifier": ["https://lab.example/ids?a=b|A\\|1\\,2 +&é"]}
    assert b'"v":1.20' in request.content
    assert request.headers["content-type"] == "application/fhir+json"


async def test_conditional_create_finds_existing_resource(service: Service) -> None:
    found = {"resourceType": "Observation", "id": "o1", "meta": {"versionId": "6"}}
    service.post(f"{BASE}fhir/Observation").respond(200, json=found)
    saved = await service.client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert (saved.version, saved.created) == ("6", False)


async def test_create_without_body_read_from_headers(service: Service) -> None:
    service.post(f"{BASE}fhir/Observation").respond(201, headers={"Location": f"{BASE}fhir/Observation/o9/_history/2"})
    saved = await service.client().create("Observation", {"resourceType": "Observation", "meta": {"versionId": "old"}})
    assert (saved.id, saved.version, saved.created) == ("o9", "2", True)


async def test_update_sends_its_version(service: Service) -> None:
    route = service.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1, version=8), headers={"ETag": 'W/"8"'})
    saved = await service.client().update("Task", rid("t1"), task(1, version=7), version="7")
    assert route.calls.last.request.headers["if-match"] == 'W/"7"'
    assert saved.version == "8"


FULL, SHORT = {"system": f"{BASE}security/read", "code": "g"}, {"system": "read", "code": "g"}
LABEL = {"system": "http://hl7.org/fhir/v3/Confidentiality", "code": "N"}


@pytest.mark.parametrize(
    ("how", "meta", "expected"),
    [
        ("as_read", {"versionId": "1", "security": [FULL, "odd"]}, {"versionId": "1", "security": [FULL, "odd"]}),
        ("short", {"versionId": "1", "security": [FULL, "odd"]}, {"versionId": "1", "security": [SHORT, "odd"]}),
        ("omit", {"versionId": "1", "security": [FULL, "odd"]}, {"versionId": "1"}),
        ("short", [{"security": FULL}], {"security": [SHORT]}),
        ("short", {"security": SHORT}, {"security": [SHORT]}),
        (None, {"security": [FULL, SHORT, LABEL]}, {"security": [SHORT, LABEL]}),
    ],
)
async def test_put_sends_access_rights_as_configured(
    service: Service, how: str | None, meta: Any, expected: dict[str, Any]
) -> None:
    """By default with short names; a security label that is no right of the service goes back as it came."""
    route = service.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1))
    client = service.client(**({} if how is None else {"put_security": how}))
    await client.update("Task", rid("t1"), task(1, meta=meta), version="1")
    assert exact_json.loads(route.calls.last.request.content)["meta"] == expected


@pytest.mark.parametrize(
    ("changes", "sent", "accepted"),
    [
        ({}, "application/fhir+json", "application/fhir+json, application/json;q=0.9"),
        ({"content_type": "application/json"}, "application/json", "application/json, application/fhir+json;q=0.9"),
    ],
)
async def test_resources_travel_under_the_media_type_set(
    service: Service, changes: dict[str, Any], sent: str, accepted: str
) -> None:
    route = service.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1))
    await service.client(**changes).update("Task", rid("t1"), task(1), version="1")
    headers = route.calls.last.request.headers
    assert (headers["content-type"], headers["accept"]) == (sent, accepted)


async def test_find_returns_resource_with_our_identifier(service: Service) -> None:
    ours = [{"system": OURS.system, "value": OURS.value}]
    service.get(f"{BASE}fhir/Observation").respond(
        json=bundle(
            {"resourceType": "Observation", "id": "o1", "meta": {"versionId": "2"}, "identifier": ours},
            {"resourceType": "Observation", "id": "o2", "identifier": ours},
        )
    )
    service.get(f"{BASE}fhir/observation/o2").respond(json={"resourceType": "Observation", "id": "o2"}, headers={"ETag": 'W/"5"'})
    found = await service.client().find("Observation", OURS)
    assert [(each.id, each.version) for each in found] == [("o1", "2"), ("o2", "5")]


@pytest.mark.parametrize("own", [(), ("read", "readhistory", "updatebody")])
async def test_document_uploaded_as_binary_readable_by_its_readers(service: Service, own: tuple[str, ...]) -> None:
    """And by ourselves where that is set."""
    route = service.post(f"{BASE}fhir/Binary").respond(
        201, json={"resourceType": "Binary", "id": "b1"}, headers={"ETag": 'W/"1"'}
    )
    client = service.client(grant_own_read=bool(own))
    assert (await client.upload_document(b"%PDF", "application/pdf", readers=("g1", "g2"))).id == "b1"
    rights = [("read", "g1"), ("read", "g2"), *((each, "lab-guid") for each in own)]
    assert exact_json.loads(route.calls.last.request.content) == {
        "resourceType": "Binary",
        "meta": {"security": [{"system": right, "code": guid} for right, guid in rights]},
        "contentType": "application/pdf",
        "content": "JVBERg==",
    }


# --- signing


async def test_first_401_triggers_one_token_refresh(service: Service, token_route: respx.Route) -> None:
    token_route.side_effect = tokens()
    made = {"resourceType": "Observation", "id": "o", "meta": {"versionId": "1"}}
    route = service.post(f"{BASE}fhir/Observation")
    route.side_effect = [httpx.Response(401), httpx.Response(201, json=made)]
    await service.client().create("Observation", {"resourceType": "Observation"})
    assert [call.request.headers["authorization"] for call in route.calls] == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("onward", "address", "expected"),
    [
        (None, "urn:uuid:1", {}),
        ("?page=2", f"{BASE}fhir/Task/t1", {}),
        ("http://internal:8080/api/x", "urn:uuid:1", {"next": "http://internal:8080"}),
        (None, "https://other.example/api/fhir/Task/t1", {"fullUrl": "https://other.example:443"}),
        ("http://service.example/api/x", "nonsense://", {"next": "http://service.example:80"}),
    ],
)
async def test_foreign_links_found_in_first_page(
    service: Service, onward: str | None, address: str, expected: dict[str, str]
) -> None:
    """Also where the service does not support a page size."""
    page = bundle(task(1), onward=onward)
    page["entry"][0]["fullUrl"] = address
    route = service.get(url__startswith=BASE).respond(json=page)
    assert await service.client().foreign_links() == expected
    assert route.calls.last.request.url.params["_count"] == "1"
    route.side_effect = lambda request: httpx.Response(400) if "_count" in request.url.params else httpx.Response(200, json=page)
    assert await service.client().foreign_links() == expected


# --- the service's clock


async def test_clock_offset_read_from_date_header(service: Service, clock: VirtualClock) -> None:
    """Unless there is none of its own."""
    ahead = format_datetime(clock.now() + timedelta(minutes=6), usegmt=True)
    aged = {"Date": "Sun, 01 Mar 2026 11:00:00 GMT", "Age": "3600"}
    for headers, offset in (({"Date": ahead}, timedelta(minutes=6)), ({}, None), ({"Date": "soon"}, None), (aged, None)):
        route = service.get(url__startswith=BASE).respond(json=bundle(onward="?page=2"), headers=headers)
        client = service.client()
        assert client.service_clock_offset() is None
        route.calls.clear()
        await client.check()
        assert route.call_count == 1, "one page is enough"
        assert client.service_clock_offset() == offset, headers
