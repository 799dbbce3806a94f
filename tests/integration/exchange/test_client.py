import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
import respx

from lab_agent import errors, exact_json
from lab_agent.domain.ids import ResourceId
from lab_agent.domain.values import Identifier
from lab_agent.exchange.client import ExchangeClient
from lab_agent.ports.exchange import SearchKind, UnfilteredSearch
from tests.harness.clock import VirtualClock

BASE = "https://service.example/api/"
CONTRACTS = "https://codes.example/contract"
Make = Callable[..., ExchangeClient]


def task(number: int, version: int = 1, **more: Any) -> dict[str, Any]:
    ours = {"status": "requested", "code": {"coding": [{"code": "OrderProcessingTask"}]}}
    return {"resourceType": "Task", "id": f"t{number}", "meta": {"versionId": str(version)}, **ours, **more}


def bundle(*resources: dict[str, Any], onward: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"resourceType": "Bundle", "type": "searchset", "entry": [{"resource": each} for each in resources]}
    return found if onward is None else {**found, "link": [{"relation": "self", "url": "x"}, {"relation": "next", "url": onward}]}


def rid(value: str) -> ResourceId:
    return ResourceId(value)


async def test_every_call_observed_by_name_without_ids(make_client: Make, router: respx.MockRouter) -> None:
    router.get(f"{BASE}fhir/task/t1").respond(json=task(1))
    router.get(f"{BASE}fhir/task/t2").respond(404)
    router.put(f"{BASE}fhir/Task/t1").mock(side_effect=httpx.ReadTimeout)
    output: list[tuple[str, str]] = []
    client = make_client(heard=lambda operation, outcome, seconds: output.append((operation, outcome)) if seconds >= 0 else None)
    await client.read("Task", rid("t1"))
    with pytest.raises(errors.ResourceNotReadable):
        await client.read("Task", rid("t2"))
    with pytest.raises(errors.OutcomeUnknown):
        await client.update("Task", rid("t1"), task(1), version="1")
    assert output == [("GET Task", "ok"), ("GET Task", "ResourceNotReadable"), ("PUT Task", "OutcomeUnknown")]


# --- searches


async def test_poll_url_matches_interface(make_client: Make, router: respx.MockRouter) -> None:
    route = router.get(url__startswith=BASE).respond(json=bundle(task(1)))
    assert [found["id"] for found in await make_client().requested_order_tasks()] == ["t1"]
    request = route.calls.last.request
    assert str(request.url) == f"{BASE}fhir/task?status=requested&code=OrderProcessingTask"
    assert request.headers["authorization"] == "Bearer t1"
    assert request.headers["cache-control"] == "no-cache"


async def test_line_task_search_sends_page_size(make_client: Make, router: respx.MockRouter) -> None:
    route = router.get(url__startswith=BASE).respond(json=bundle())
    await make_client(page_size=5).line_tasks(rid("a/b"))
    assert str(route.calls.last.request.url) == f"{BASE}fhir/task?part-of=task/a%2Fb&_count=5"


@pytest.mark.parametrize(
    "onward",
    [
        f"{BASE}fhir/task?page=2",
        "?page=2",
        "fhir/task?page=2",
        "/api/fhir/task?page=2",
        "/fhir/task?page=2",
        "https://SERVICE.example:443/api/fhir/task?page=2",
    ],
)
async def test_pages_followed_and_duplicates_counted_once(make_client: Make, router: respx.MockRouter, onward: str) -> None:
    router.get(f"{BASE}fhir/task", params={"status": "requested"}).respond(json=bundle(task(1), task(2), onward=onward))
    router.get(f"{BASE}fhir/task", params={"page": "2"}).respond(json=bundle(task(2, version=2), task(3)))
    found = await make_client().requested_order_tasks()
    assert [(each["id"], each["meta"]["versionId"]) for each in found] == [("t1", "1"), ("t2", "2"), ("t3", "1")]


@pytest.mark.parametrize(
    "onward", ["https://evil.example/x", "http://service.example/api/x", "//evil.example/x", "https://service.example:444/x"]
)
async def test_foreign_next_link_rejected_without_request(make_client: Make, router: respx.MockRouter, onward: str) -> None:
    """A next link to another origin is rejected, and nothing is sent there."""
    router.get(url__startswith=BASE).respond(json=bundle(task(1), onward=onward))
    elsewhere = router.route(host="evil.example").respond(200)
    with pytest.raises(errors.ForeignOrigin):
        await make_client().requested_order_tasks()
    assert not elsewhere.called
    assert len(router.calls) == 2  # the token, and the first page


@pytest.mark.parametrize("onward", [f"{BASE}fhir/task?page=2", f"{BASE}fhir/task?status=requested&code=OrderProcessingTask"])
async def test_circular_pages_are_an_error(make_client: Make, router: respx.MockRouter, onward: str) -> None:
    """A next link to a page that was read, be it its own, hides what follows; it never ends the search in silence."""
    route = router.get(f"{BASE}fhir/task").respond(json=bundle(task(1), onward=onward))
    with pytest.raises(errors.ServiceUnavailable):
        await make_client().requested_order_tasks()
    assert route.call_count <= 6


ELSEWHERE = {"coding": [{"code": "BillingTask"}]}


@pytest.mark.parametrize(
    "stray", [{"code": ELSEWHERE}, {"code": {}}, {"status": "completed"}, {"status": "on-hold", "code": ELSEWHERE}]
)
async def test_poll_leaves_aside_what_was_not_asked_for(
    make_client: Make, router: respx.MockRouter, stray: dict[str, Any]
) -> None:
    router.get(url__startswith=BASE).respond(json=bundle(task(1), task(2, **stray)))
    assert [found["id"] for found in await make_client().requested_order_tasks()] == ["t1"]


async def test_stale_status_becomes_a_finding_after_index_lag(
    make_client: Make, router: respx.MockRouter, clock: VirtualClock
) -> None:
    """An index may be a minute behind the resources: only a row that stays wrong says that the service does not filter."""
    router.get(url__startswith=BASE).respond(json=bundle(task(1), task(2, status="completed")))
    client = make_client()
    await client.requested_order_tasks()
    assert client.take_search_findings() == {SearchKind.ORDER_TASKS: True}
    clock.advance(180)
    await client.requested_order_tasks()
    assert client.take_search_findings() == {SearchKind.ORDER_TASKS: False}
    assert client.take_search_findings() == {}


async def test_part_of_ignored_raises_with_own_lines(make_client: Make, router: respx.MockRouter) -> None:
    ours, other = (task(number, partOf=[{"reference": f"Task/{of}"}]) for number, of in ((1, "o1"), (2, "o2")))
    router.get(url__startswith=BASE).respond(json=bundle(ours, other, task(3)))
    client = make_client()
    with pytest.raises(UnfilteredSearch) as raised:
        await client.line_tasks(rid("o1"))
    assert raised.value.rows == (ours,)
    assert client.take_search_findings() == {SearchKind.LINE_TASKS: False}


async def test_subject_ignored_raises_with_own_answers(make_client: Make, router: respx.MockRouter) -> None:
    answers = [
        {"resourceType": "QuestionnaireResponse", "id": f"q{each}", "subject": {"reference": f"procedurerequest/p{each}"}}
        for each in (1, 2)
    ]
    router.get(url__startswith=BASE).respond(json=bundle(*answers))
    with pytest.raises(UnfilteredSearch) as raised:
        await make_client().questionnaire_responses([rid("p1")])
    assert raised.value.rows == (answers[0],)


async def test_contract_of_another_code_is_not_ours(make_client: Make, router: respx.MockRouter) -> None:
    def contract(number: int, code: str) -> dict[str, Any]:
        return {"resourceType": "Contract", "id": f"c{number}", "identifier": {"system": CONTRACTS, "value": code}}

    router.get(url__startswith=BASE).respond(json=bundle(contract(1, "C-1"), contract(2, "C-2")))
    client = make_client()
    assert await client.contract_ids("C-1") == ("c1",)
    assert client.take_search_findings() == {SearchKind.BY_IDENTIFIER: False}


async def test_found_resource_without_our_identifier_is_not_ours(make_client: Make, router: respx.MockRouter) -> None:
    """A lenient service answers with somebody else's Observation: taking it for ours would lose a result."""
    other = {"resourceType": "Observation", "id": "o1", "identifier": [{"system": OURS.system, "value": "another"}]}
    router.get(url__startswith=BASE).respond(json=bundle(other))
    assert await make_client().find("Observation", OURS) == ()


@pytest.mark.parametrize("body", [{"resourceType": "Bundle"}, {"resourceType": "Bundle", "entry": None, "link": None}])
async def test_bundle_without_entries_is_empty(make_client: Make, router: respx.MockRouter, body: dict[str, Any]) -> None:
    router.get(url__startswith=BASE).respond(json=body)
    assert await make_client().requested_order_tasks() == ()


async def test_unrelated_bundle_entries_skipped(make_client: Make, router: respx.MockRouter) -> None:
    other = {"resourceType": "OperationOutcome", "issue": []}
    router.get(url__startswith=BASE).respond(
        json={**bundle(other, task(1)), "entry": [{"resource": other}, {}, 3, {"resource": task(1)}]}
    )
    assert len(await make_client().requested_order_tasks()) == 1


@pytest.mark.parametrize("text", ["<html>sign in</html>", '{"resourceType":"Task"}', "[]", '{"resourceType": "Bun'])
async def test_unexpected_search_response_is_temporary_failure(make_client: Make, router: respx.MockRouter, text: str) -> None:
    router.get(url__startswith=BASE).respond(text=text)
    with pytest.raises(errors.ServiceUnavailable):
        await make_client().requested_order_tasks()


async def test_unsupported_response_search_is_remembered(make_client: Make, router: respx.MockRouter) -> None:
    """A rejected search of questionnaire responses is remembered."""
    route = router.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(404)
    client = make_client()
    assert await client.questionnaire_responses([rid("p1"), rid("p2")]) is None
    assert await client.questionnaire_responses([rid("p3")]) is None
    assert route.call_count == 1
    assert str(route.calls.last.request.url) == f"{BASE}fhir/questionnaireresponse?subject=procedurerequest/p1"


async def test_responses_found_twice_count_once(make_client: Make, router: respx.MockRouter) -> None:
    answers = {"resourceType": "QuestionnaireResponse", "id": "q1", "subject": {"reference": "ProcedureRequest/p1"}}
    router.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(json=bundle(answers, answers))
    assert await make_client().questionnaire_responses([rid("p1"), rid("p1")]) == (answers,)


async def test_disabled_response_search_sends_nothing(make_client: Make, router: respx.MockRouter) -> None:
    assert await make_client(questionnaire_search="off").questionnaire_responses([rid("p1")]) is None
    assert not router.calls


async def test_contract_ids_cached_once_known(make_client: Make, router: respx.MockRouter) -> None:
    contract = {"resourceType": "Contract", "id": "c1"}
    route = router.get(url__startswith=f"{BASE}fhir/Contract")
    route.side_effect = [httpx.Response(200, json=bundle()), httpx.Response(200, json=bundle(contract))]
    client = make_client()
    assert await client.contract_ids("C-1&x") == ()
    assert await client.contract_ids("C-1&x") == ("c1",)
    assert await client.contract_ids("C-1&x") == ("c1",)
    assert route.call_count == 2
    assert dict(route.calls.last.request.url.params) == {"identifier": "https://codes.example/contract|C-1&x"}


# --- reads


async def test_read_returns_etag_version_and_exact_digits(make_client: Make, router: respx.MockRouter) -> None:
    text = '{"resourceType":"ProcedureRequest","id":"p1","meta":{"versionId":"2"},"x":1.20,"y":123456789012345678901234567890.10}'
    route = router.get(f"{BASE}fhir/procedurerequest/p1").respond(text=text, headers={"ETag": 'W/"3"'})
    saved = await make_client().read("ProcedureRequest", rid("p1"))
    assert (saved.id, saved.version) == ("p1", "3")
    assert saved.body["x"] == Decimal("1.20")
    assert exact_json.dumps(saved.body).decode() == text
    assert route.called


async def test_read_without_etag_uses_body_version(make_client: Make, router: respx.MockRouter) -> None:
    router.get(f"{BASE}fhir/task/t1").respond(json=task(1, version=4))
    assert (await make_client().read("Task", rid("t1"))).version == "4"


async def test_read_of_wrong_resource_rejected(make_client: Make, router: respx.MockRouter) -> None:
    router.get(f"{BASE}fhir/patient/p1").respond(json={"resourceType": "Patient", "id": "p2", "meta": {"versionId": "1"}})
    router.put(f"{BASE}fhir/Task/t1").respond(json=task(2))
    with pytest.raises(errors.ServiceUnavailable):
        await make_client().read("Patient", rid("p1"))
    with pytest.raises(errors.InvalidResponse):
        await make_client().update("Task", rid("t1"), task(1), version="1")


@pytest.mark.parametrize("resource_id", ["", ".", ".."])
async def test_id_cannot_traverse_paths(make_client: Make, router: respx.MockRouter, resource_id: str) -> None:
    with pytest.raises(errors.ForeignOrigin):
        await make_client().read("Task", rid(resource_id))
    assert not router.calls


async def test_get_retried_a_few_times(make_client: Make, router: respx.MockRouter) -> None:
    route = router.get(f"{BASE}fhir/task/t1")
    route.side_effect = [httpx.Response(500), httpx.ReadTimeout("x"), httpx.Response(200, json=task(1))]
    assert (await make_client().read("Task", rid("t1"))).id == "t1"
    route.side_effect = [httpx.Response(500)] * 9
    with pytest.raises(errors.ServiceUnavailable):
        await make_client().read("Task", rid("t1"))
    assert route.call_count == 6


async def test_long_retry_after_not_waited_within_call(make_client: Make, router: respx.MockRouter) -> None:
    """A long wait that the service asks for is not waited within the call."""
    route = router.get(f"{BASE}fhir/task/t1").respond(429, headers={"Retry-After": "30"})
    with pytest.raises(errors.ServiceUnavailable) as caught:
        await make_client().read("Task", rid("t1"))
    assert caught.value.retry_after == 30.0
    assert route.call_count == 1


async def test_missing_resource_not_retried(make_client: Make, router: respx.MockRouter) -> None:
    route = router.get(f"{BASE}fhir/patient/x").respond(404)
    with pytest.raises(errors.ResourceNotReadable):
        await make_client().read("Patient", rid("x"))
    assert route.call_count == 1


async def test_concurrent_calls_stay_within_limit(make_client: Make, router: respx.MockRouter) -> None:
    running = most = 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return httpx.Response(200, json=task(int(request.url.path.rpartition("t")[2])))

    router.get(url__startswith=f"{BASE}fhir/task/").mock(side_effect=slow)
    client = make_client(max_concurrency=3)
    await asyncio.gather(*(client.read("Task", rid(f"t{number}")) for number in range(20)))
    assert most == 3


# --- writes

OURS = Identifier(system="https://lab.example/ids?a=b", value="A|1,2 +&é")


async def test_conditional_create_encoded_as_query(make_client: Make, router: respx.MockRouter) -> None:
    route = router.post(f"{BASE}fhir/Observation").respond(
        201, json={"resourceType": "Observation", "id": "o1"}, headers={"ETag": 'W/"1"'}
    )
    saved = await make_client().create("Observation", {"resourceType": "Observation", "v": Decimal("1.20")}, if_none_exist=OURS)
    assert (saved.id, saved.version, saved.created) == ("o1", "1", True)
    request = route.calls.last.request
    header = request.headers["if-none-exist"]
    assert header.isascii()
    assert parse_qs(header) == {"identifier": ["https://lab.example/ids?a=b|A\\|1\\,2 +&é"]}
    assert b'"v":1.20' in request.content
    assert request.headers["content-type"] == "application/json"


async def test_conditional_create_finds_existing_resource(make_client: Make, router: respx.MockRouter) -> None:
    router.post(f"{BASE}fhir/Observation").respond(
        200, json={"resourceType": "Observation", "id": "o1", "meta": {"versionId": "6"}}
    )
    saved = await make_client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert (saved.version, saved.created) == ("6", False)


async def test_create_without_body_read_from_headers(make_client: Make, router: respx.MockRouter) -> None:
    router.post(f"{BASE}fhir/Observation").respond(201, headers={"Location": f"{BASE}fhir/Observation/o9/_history/2"})
    saved = await make_client().create("Observation", {"resourceType": "Observation", "meta": {"versionId": "old"}})
    assert (saved.id, saved.version, saved.created) == ("o9", "2", True)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (httpx.Response(412), errors.MultipleMatches),
        (httpx.Response(400, json={"resourceType": "OperationOutcome", "issue": []}), errors.ServiceRejected),
        (httpx.Response(500), errors.OutcomeUnknown),
        (httpx.Response(503), errors.OutcomeUnknown),
        (httpx.Response(503, headers={"Retry-After": "1"}), errors.ServiceUnavailable),
        (httpx.Response(200, text="<html>"), errors.InvalidResponse),
        (httpx.Response(200, json={"resourceType": "Observation"}), errors.InvalidResponse),
        (httpx.Response(200, json={"resourceType": "OperationOutcome"}), errors.InvalidResponse),
        (httpx.Response(200), errors.InvalidResponse),
        (httpx.Response(302, headers={"Location": "https://evil.example/"}), errors.ServiceRejected),
        (httpx.ConnectError("x"), errors.ServiceUnavailable),
        (httpx.ConnectTimeout("x"), errors.ServiceUnavailable),
        (httpx.PoolTimeout("x"), errors.ServiceUnavailable),
        (httpx.ReadTimeout("x"), errors.OutcomeUnknown),
        (httpx.ReadError("x"), errors.OutcomeUnknown),
        (httpx.WriteError("x"), errors.OutcomeUnknown),
        (httpx.RemoteProtocolError("x"), errors.OutcomeUnknown),
    ],
)
async def test_write_sent_once_and_failure_states_possible_outcome(
    make_client: Make, router: respx.MockRouter, answer: Any, expected: type
) -> None:
    """A write is sent once, and its failure says what may have happened."""
    route = router.post(f"{BASE}fhir/Observation").mock(side_effect=[answer])
    with pytest.raises(errors.Failure) as caught:
        await make_client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert type(caught.value) is expected
    assert route.call_count == 1


async def test_update_sends_its_version(make_client: Make, router: respx.MockRouter) -> None:
    route = router.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1, version=8), headers={"ETag": 'W/"8"'})
    saved = await make_client().update("Task", rid("t1"), task(1, version=7), version="7")
    assert route.calls.last.request.headers["if-match"] == 'W/"7"'
    assert saved.version == "8"


@pytest.mark.parametrize("status", [409, 412])
async def test_update_of_stale_version_fails(make_client: Make, router: respx.MockRouter, status: int) -> None:
    router.put(f"{BASE}fhir/Task/t1").respond(status)
    with pytest.raises(errors.StaleVersion):
        await make_client().update("Task", rid("t1"), task(1), version="1")


async def test_update_with_empty_response_is_invalid(make_client: Make, router: respx.MockRouter) -> None:
    """The version in what we sent is the old one; it must not be taken for the new one."""
    router.put(f"{BASE}fhir/Task/t1").respond(204)
    with pytest.raises(errors.InvalidResponse):
        await make_client().update("Task", rid("t1"), task(1, version=7), version="7")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("as_read", {"versionId": "1", "security": [{"system": f"{BASE}security/read", "code": "g"}, "odd"]}),
        ("short", {"versionId": "1", "security": [{"system": "read", "code": "g"}, "odd"]}),
        ("omit", {"versionId": "1"}),
    ],
)
async def test_put_sends_access_rights_as_configured(
    make_client: Make, router: respx.MockRouter, how: str, expected: dict[str, Any]
) -> None:
    route = router.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1))
    body = task(1, meta={"versionId": "1", "security": [{"system": f"{BASE}security/read", "code": "g"}, "odd"]})
    await make_client(put_security=how).update("Task", rid("t1"), body, version="1")
    assert exact_json.loads(route.calls.last.request.content)["meta"] == expected


async def test_find_returns_resource_with_our_identifier(make_client: Make, router: respx.MockRouter) -> None:
    ours = [{"system": OURS.system, "value": OURS.value}]
    router.get(f"{BASE}fhir/Observation").respond(
        json=bundle(
            {"resourceType": "Observation", "id": "o1", "meta": {"versionId": "2"}, "identifier": ours},
            {"resourceType": "Observation", "id": "o2", "identifier": ours},
        )
    )
    router.get(f"{BASE}fhir/observation/o2").respond(json={"resourceType": "Observation", "id": "o2"}, headers={"ETag": 'W/"5"'})
    found = await make_client().find("Observation", OURS)
    assert [(each.id, each.version) for each in found] == [("o1", "2"), ("o2", "5")]


async def test_document_uploaded_as_binary_readable_by_its_readers(make_client: Make, router: respx.MockRouter) -> None:
    route = router.post(f"{BASE}fhir/Binary").respond(201, json={"resourceType": "Binary", "id": "b1"}, headers={"ETag": 'W/"1"'})
    saved = await make_client().upload_document(b"%PDF", "application/pdf", readers=("g1", "g2"))
    assert saved.id == "b1"
    assert exact_json.loads(route.calls.last.request.content) == {
        "resourceType": "Binary",
        "meta": {"security": [{"system": "read", "code": "g1"}, {"system": "read", "code": "g2"}]},
        "contentType": "application/pdf",
        "content": "JVBERg==",
    }


# --- signing


async def test_first_401_triggers_one_token_refresh(
    make_client: Make, router: respx.MockRouter, token_route: respx.Route
) -> None:
    token_route.side_effect = [
        httpx.Response(200, json={"access_token": "t1", "refresh_token": "r1"}),
        httpx.Response(200, json={"access_token": "t2", "refresh_token": "r2"}),
    ]
    route = router.post(f"{BASE}fhir/Observation")
    route.side_effect = [
        httpx.Response(401),
        httpx.Response(201, json={"resourceType": "Observation", "id": "o", "meta": {"versionId": "1"}}),
    ]
    await make_client().create("Observation", {"resourceType": "Observation"})
    assert [call.request.headers["authorization"] for call in route.calls] == ["Bearer t1", "Bearer t2"]


async def test_repeated_401_requires_authentication(
    make_client: Make, router: respx.MockRouter, token_route: respx.Route
) -> None:
    router.route(url__startswith=BASE).respond(401)
    with pytest.raises(errors.AuthenticationRequired):
        await make_client().read("Task", rid("t1"))
    with pytest.raises(errors.AuthenticationRequired):
        await make_client().requested_order_tasks()


async def test_isolated_401_means_missing_access_right(make_client: Make, router: respx.MockRouter) -> None:
    """A 401 for one resource alone is a missing right."""
    router.get(f"{BASE}fhir/patient/x").respond(401)
    router.get(f"{BASE}fhir/task").respond(json=bundle())
    with pytest.raises(errors.ResourceNotReadable):
        await make_client().read("Patient", rid("x"))


async def test_check_requests_one_page(make_client: Make, router: respx.MockRouter) -> None:
    route = router.get(f"{BASE}fhir/task").respond(json=bundle(task(1), onward=f"{BASE}fhir/task?page=2"))
    await make_client().check()
    assert route.call_count == 1
