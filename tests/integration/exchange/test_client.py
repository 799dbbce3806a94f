import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from email.utils import format_datetime
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
    assert output == [("GET Task", "ok"), ("GET Task", "not_readable"), ("PUT Task", "outcome_unknown")]


async def test_every_call_carries_bearer_token(make_client: Make, router: respx.MockRouter) -> None:
    route = router.route(url__startswith=BASE).respond(json=task(1), headers={"ETag": 'W/"2"'})
    client = make_client()
    await client.read("Task", rid("t1"))
    await client.update("Task", rid("t1"), task(1), version="1")
    await client.create("Task", task(1), if_none_exist=Identifier(system="urn:x", value="1"))
    assert [call.request.method for call in route.calls] == ["GET", "PUT", "POST"]
    assert {call.request.headers["authorization"] for call in route.calls} == {"Bearer t1"}


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
    """A next link to another origin is not followed, and the page with it counts."""
    router.get(url__startswith=BASE).respond(json=bundle(task(1), onward=onward))
    elsewhere = router.route(host="evil.example").respond(200)
    client = make_client()
    assert [each["id"] for each in await client.requested_order_tasks()] == ["t1"]
    assert isinstance(client.order_tasks_cut_off(), errors.ForeignLink)
    assert not elsewhere.called
    assert len(router.calls) == 2  # the token, and the first page
    with pytest.raises(errors.ForeignLink):
        await client.line_tasks(rid("o1"))


@pytest.mark.parametrize(
    "link",
    [
        "",
        "  ",
        "http://[bad",
        "https://service.example:99999/api/x",
        "urn:uuid:1",
        "fhir/task?a b",
        "page=2",
        "fhir/task?page=404",
        "fhir/task?page=html",
        "fhir/task?page=500",
        "fhir/task?page=outcome",
        None,
        7,
    ],
)
async def test_unusable_next_link_cuts_off_and_keeps_rows(make_client: Make, router: respx.MockRouter, link: object) -> None:
    """What cannot be reached behind a page that was read hides what follows: the search itself was answered."""
    router.get(f"{BASE}fhir/task", params={"page": "html"}).respond(text="<html>")
    router.get(f"{BASE}fhir/task", params={"page": "500"}).respond(500)
    router.get(f"{BASE}fhir/task", params={"page": "outcome"}).respond(json={"resourceType": "OperationOutcome", "issue": []})
    router.get(f"{BASE}fhir/task", params={"page": "404"}).respond(404)
    router.get(f"{BASE}page=2").respond(404)
    first = {**bundle(task(1)), "link": [{"relation": "next", "url": link}]}
    router.get(f"{BASE}fhir/task").respond(json=first)
    client = make_client()
    assert [each["id"] for each in await client.requested_order_tasks()] == ["t1"]
    assert type(client.order_tasks_cut_off()) is errors.ServiceUnavailable
    with pytest.raises(errors.ServiceUnavailable):
        await client.line_tasks(rid("o1"))


async def test_next_page_without_right_is_no_unsupported_search(make_client: Make, router: respx.MockRouter) -> None:
    """The answers stay asked for: a search whose first page was read is one that the service supports."""
    router.get(url__startswith=BASE, params={"page": "2"}).respond(404)
    router.get(url__startswith=BASE).respond(json=bundle(onward="?page=2"))
    client = make_client()
    for _ in range(2):
        with pytest.raises(errors.ServiceUnavailable):
            await client.questionnaire_responses([rid("p1")])


@pytest.mark.parametrize(("status", "headers"), [(401, {}), (503, {"Retry-After": "30"})])
async def test_next_page_refused_to_everybody_fails_the_search(
    make_client: Make, router: respx.MockRouter, status: int, headers: dict[str, str]
) -> None:
    router.get(url__startswith=BASE, params={"page": "2"}).respond(status, headers=headers)
    router.get(url__startswith=BASE).respond(json=bundle(task(1), onward="?page=2"))
    with pytest.raises(errors.TemporaryFailure):
        await make_client().requested_order_tasks()


def outcome(*issues: tuple[str, str]) -> dict[str, Any]:
    listed = [{"severity": severity, "code": code, "diagnostics": "nothing found"} for severity, code in issues]
    return {"resourceType": "OperationOutcome", "issue": listed}


@pytest.mark.parametrize(
    "issues",
    [[("information", "informational")], [("error", "not-found")], [("warning", "not-found"), ("information", "informational")]],
)
async def test_outcome_saying_nothing_found_is_empty_search(
    make_client: Make, router: respx.MockRouter, issues: list[tuple[str, str]]
) -> None:
    router.get(url__startswith=BASE).respond(json=outcome(*issues))
    client = make_client()
    assert await client.requested_order_tasks() == ()
    assert await client.line_tasks(rid("o1")) == ()


@pytest.mark.parametrize(
    "issues",
    [
        [],
        [("error", "processing")],
        [("information", "suppressed")],
        [("warning", "informational")],
        [("error", "not-found"), ("error", "security")],
    ],
)
async def test_other_outcome_in_place_of_bundle_is_an_error(
    make_client: Make, router: respx.MockRouter, issues: list[tuple[str, str]]
) -> None:
    router.get(url__startswith=BASE).respond(content=b"\xef\xbb\xbf" + exact_json.dumps(outcome(*issues)))
    with pytest.raises(errors.ServiceUnavailable) as caught:
        await make_client().requested_order_tasks()
    assert [issue.code for issue in caught.value.issues] == [code for _, code in issues]


@pytest.mark.parametrize("onward", [f"{BASE}fhir/task?page=2", f"{BASE}fhir/task?status=requested&code=OrderProcessingTask"])
async def test_circular_pages_are_told_and_an_error(make_client: Make, router: respx.MockRouter, onward: str) -> None:
    """A next link to a page that was read, be it its own, hides what follows; it never ends the search in silence."""
    route = router.get(f"{BASE}fhir/task").respond(json=bundle(task(1), onward=onward))
    client = make_client()
    assert len(await client.requested_order_tasks()) == 1
    assert "circle" in str(client.order_tasks_cut_off())
    assert route.call_count <= 2
    with pytest.raises(errors.ServiceUnavailable):
        await client.line_tasks(rid("o1"))
    route.respond(json=bundle(task(1)))
    await client.requested_order_tasks()
    assert client.order_tasks_cut_off() is None


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


STRANGE: list[dict[str, Any]] = [
    {"resourceType": "Basic", "id": "1"},
    {"resourceType": "Patient", "id": "t1"},
    {"resourceType": "Provenance"},
    {"resourceType": "Anything", "id": "7"},
]
REMARKS = [outcome(("error", "not-supported")), {**outcome(("warning", "processing")), "resourceType": "OPERATIONOUTCOME"}]


@pytest.mark.parametrize("stray", [*STRANGE, *REMARKS])
async def test_row_of_another_type_stops_no_search(make_client: Make, router: respx.MockRouter, stray: dict[str, Any]) -> None:
    """It says nothing about how the search filters; what is no remark of the service's own is told."""
    ours = task(1, partOf=[{"reference": "Task/o1"}])
    router.get(url__startswith=BASE).respond(json=bundle(ours, stray))
    client = make_client()
    assert await client.line_tasks(rid("o1")) == (ours,)
    assert client.take_search_findings() == {SearchKind.LINE_TASKS: stray in REMARKS}


async def test_contested_line_is_read_by_its_id(make_client: Make, router: respx.MockRouter) -> None:
    part_of = [{"reference": "Task/o1"}]
    copies = [task(1, meta={}, partOf=part_of, status=status) for status in ("requested", "on-hold")]
    router.get(f"{BASE}fhir/task", params={"part-of": "task/o1"}).respond(json=bundle(*copies))
    now = task(1, version=4, partOf=part_of, status="on-hold")
    route = router.get(f"{BASE}fhir/task/t1").respond(json=now)
    client = make_client()
    assert await client.line_tasks(rid("o1")) == (now,)
    route.respond(404)
    assert await client.line_tasks(rid("o1")) == ()
    route.respond(403)
    with pytest.raises(errors.InvalidResponse):
        await client.line_tasks(rid("o1"))
    route.respond(429, headers={"Retry-After": "60"})
    with pytest.raises(errors.ServiceUnavailable):
        await client.line_tasks(rid("o1"))


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


POISON = {
    "lone surrogate": '"\\ud83d"',
    "raw surrogate": '"\ud83d"',
    "NaN": "NaN",
    "digits": "1" * 100_000,
    "deep": "[" * 50_000 + "]" * 50_000,
    "deep valid": "[" * 900 + "]" * 900,
    "control character": '"\x01\n"',
    "exponent": "1e99999999999999999999",
    "brackets in a string": '"]}[{,\\"" : NaN',
}


@pytest.fixture(params=POISON.values(), ids=POISON)
def poisoned_task(request: pytest.FixtureRequest) -> bytes:
    """A Task of id t2 that no JSON parser reads."""
    text = f'{{"note": [{{"id": "n1", "x": {request.param}}}], "resourceType": "Task", "id": "t2", "meta": {{"versionId": "1"}}}}'
    return text.encode("utf-8", "surrogatepass")


def page_of(*resources: bytes) -> bytes:
    entries = b", ".join(b'{"fullUrl": "urn:x", "resource": ' + each + b', "search": {"mode": "match"}}' for each in resources)
    return b'{"resourceType": "Bundle", "meta": {"tag": ["entry"]}, "entry": [' + entries + b'], "link": [], "total": 3}'


async def test_poisoned_task_spoils_only_itself(make_client: Make, router: respx.MockRouter, poisoned_task: bytes) -> None:
    good = [exact_json.dumps(task(number, weight=Decimal("1.20"))) for number in (1, 3)]
    router.get(url__startswith=BASE).respond(content=page_of(good[0], poisoned_task, good[1]))
    client = make_client()
    assert [each["id"] for each in await client.requested_order_tasks()] == ["t1", "t3"]
    assert client.unreadable_order_tasks() == ("t2",)
    router.get(url__startswith=BASE).respond(content=page_of(*good))
    await client.requested_order_tasks()
    assert client.unreadable_order_tasks() == ()


async def test_search_for_lines_fails_with_unreadable_one(
    make_client: Make, router: respx.MockRouter, poisoned_task: bytes
) -> None:
    """An order without one of its lines is another order; a resource that we look for may be the unreadable one."""
    router.get(url__startswith=BASE).respond(content=page_of(exact_json.dumps(task(1)), poisoned_task))
    with pytest.raises(errors.InvalidResponse, match="Task t2"):
        await make_client().line_tasks(rid("t0"))


async def test_poisoned_resource_is_invalid_alone(make_client: Make, router: respx.MockRouter, poisoned_task: bytes) -> None:
    router.get(f"{BASE}fhir/task/t2").respond(content=poisoned_task)
    with pytest.raises(errors.InvalidResponse):
        await make_client().read("Task", rid("t2"))


@pytest.mark.parametrize("end", [10, -1, -40])
async def test_page_cut_off_is_temporary_failure(make_client: Make, router: respx.MockRouter, end: int) -> None:
    router.get(url__startswith=BASE).respond(content=page_of(exact_json.dumps(task(1)), exact_json.dumps(task(2)))[:end])
    with pytest.raises(errors.ServiceUnavailable):
        await make_client().requested_order_tasks()


@pytest.mark.parametrize("status", [400, 404, 405, 422, 501])
async def test_unsupported_response_search_is_remembered(
    make_client: Make, router: respx.MockRouter, clock: VirtualClock, status: int
) -> None:
    """A rejected search of questionnaire responses is remembered, and tried again after an hour."""
    route = router.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(status)
    client = make_client()
    assert await client.questionnaire_responses([rid("p1"), rid("p2")]) is None
    assert await client.questionnaire_responses([rid("p3")]) is None
    assert route.call_count == 1
    assert str(route.calls.last.request.url) == f"{BASE}fhir/questionnaireresponse?subject=procedurerequest/p1"
    route.respond(json=bundle())
    clock.advance(hours=1)
    assert await client.questionnaire_responses([rid("p3")]) == ()


async def test_response_search_without_right_is_not_remembered(make_client: Make, router: respx.MockRouter) -> None:
    """The answers of a clinic are not done without because of a right that can still be granted."""
    route = router.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(403)
    client = make_client()
    with pytest.raises(errors.ServiceRejected) as caught:
        await client.questionnaire_responses([rid("p1")])
    assert caught.value.may_pass
    route.respond(json=bundle())
    assert await client.questionnaire_responses([rid("p1")]) == ()


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


ALTERED_ETAGS = ['W/"3--gzip"', 'W/"3-gzip"', '"3;gzip"', 'W/"3-br"', '"df-3"', "3", 'W/""']
"""What a gateway makes of the ETag of version 3."""


@pytest.mark.parametrize("etag", ALTERED_ETAGS)
async def test_altered_etag_leaves_the_version(make_client: Make, router: respx.MockRouter, etag: str) -> None:
    """Reads, both writes and a conditional create: the version is what the resource says, or its Location."""
    headers = {"ETag": etag}
    router.get(f"{BASE}fhir/task/t1").respond(json=task(1, version=3), headers=headers)
    router.put(f"{BASE}fhir/Task/t1").respond(json=task(1, version=3), headers=headers)
    made = router.post(f"{BASE}fhir/Task").respond(201, json=task(1, version=3), headers=headers)
    client = make_client()
    saved = [await client.read("Task", rid("t1")), await client.update("Task", rid("t1"), task(1), version="2")]
    saved += [await client.create("Task", task(1)), await client.create("Task", task(1), if_none_exist=OURS)]
    made.respond(201, headers={**headers, "Location": f"{BASE}fhir/Task/t1/_history/3"})
    saved.append(await client.create("Task", task(1)))
    assert [each.version for each in saved] == ["3"] * 5


@pytest.mark.parametrize("etag", ALTERED_ETAGS[:4])
async def test_altered_etag_is_found_in_a_task_or_contract(make_client: Make, router: respx.MockRouter, etag: str) -> None:
    page = router.get(f"{BASE}fhir/task", params={"status": "requested"}).respond(json=bundle(task(1)))
    router.get(f"{BASE}fhir/task/t1").respond(json=task(1, version=3), headers={"ETag": etag})
    contract = {"resourceType": "Contract", "id": "c1", "meta": {"versionId": "3"}}
    router.get(f"{BASE}fhir/Contract").respond(json=bundle(contract))
    router.get(f"{BASE}fhir/contract/c1").respond(json=contract, headers={"ETag": etag})
    client = make_client(contracts={"C-1": {}})
    assert str(await client.altered_etag()).endswith("for version 3")
    page.respond(json=bundle())
    assert str(await client.altered_etag()).endswith("for version 3")
    router.get(f"{BASE}fhir/contract/c1").respond(json=contract, headers={"ETag": 'W/"3"'})
    assert await client.altered_etag() is None
    router.get(f"{BASE}fhir/contract/c1").respond(403)
    assert await client.altered_etag() is None


@pytest.mark.parametrize("etag", ['W/"3-gzip"', '"3--gzip"', 'W/"3;br"', '"3-deflate"', '"3-GZIP"'])
async def test_altered_etag_without_another_version_is_read(make_client: Make, router: respx.MockRouter, etag: str) -> None:
    """If-Match never says what a gateway added, and `check` tells of it."""
    bare = {**task(1), "meta": {}}
    router.get(f"{BASE}fhir/task", params={"status": "requested"}).respond(json=bundle(task(1)))
    router.get(f"{BASE}fhir/task/t1").respond(json=bare, headers={"ETag": etag})
    client = make_client()
    assert (await client.read("Task", rid("t1"))).version == "3"
    assert str(await client.altered_etag()).endswith("for version 3")


@pytest.mark.parametrize("etag", ['W/"3"', '"abc-1"', '"gzip"', '"3-x"'])
async def test_etag_of_another_form_is_the_version(make_client: Make, router: respx.MockRouter, etag: str) -> None:
    router.get(f"{BASE}fhir/task/t1").respond(json={**task(1), "meta": None}, headers={"ETag": etag})
    assert (await make_client().read("Task", rid("t1"))).version == etag.removeprefix("W/").strip('"')


@pytest.mark.parametrize("found", [{"id": 1}, {"id": " 1 "}, {"id": ["1"], "meta": [{"versionId": 3}]}, {"id": None}])
async def test_read_gives_id_and_version_as_texts(make_client: Make, router: respx.MockRouter, found: dict[str, Any]) -> None:
    router.get(f"{BASE}fhir/task/1").respond(json={**task(1, version=3), **found})
    saved = await make_client().read("Task", rid("1"))
    assert (saved.id, saved.body["id"], saved.version) == ("1", "1", "3")


async def test_read_returns_version_and_exact_digits(make_client: Make, router: respx.MockRouter) -> None:
    text = '{"resourceType":"ProcedureRequest","id":"p1","meta":{"versionId":"3"},"x":1.20,"y":123456789012345678901234567890.10}'
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
    with pytest.raises(errors.InvalidResponse):
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
    assert request.headers["content-type"] == "application/fhir+json"


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
        (httpx.Response(302, headers={"Location": "https://evil.example/"}), errors.OutcomeUnknown),
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


OUTCOME = {"resourceType": "OperationOutcome", "issue": [{"severity": "information", "code": "informational"}]}


@pytest.mark.parametrize("body", [{"json": OUTCOME}, {"text": "<html>created</html>"}, {"text": '{"x": NaN}'}, {}])
async def test_create_answered_with_headers_alone_is_done(
    make_client: Make, router: respx.MockRouter, body: dict[str, Any]
) -> None:
    """A 2xx with Location and ETag says that it was done, whatever its body is."""
    headers = {"Location": f"{BASE}fhir/Observation/o9", "ETag": 'W/"2"'}
    router.post(f"{BASE}fhir/Observation").respond(201, headers=headers, **body)
    saved = await make_client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert (saved.id, saved.version, saved.created) == ("o9", "2", True)


async def test_id_in_location_is_percent_encoded(make_client: Make, router: respx.MockRouter) -> None:
    headers = {"Location": f"{BASE}fhir/Observation/o%209%7C%D0%B6", "ETag": 'W/"2"'}
    router.post(f"{BASE}fhir/Observation").respond(201, headers=headers)
    saved = await make_client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert saved.id == "o 9|ж"


async def test_update_answered_with_outcome_and_etag_is_done(make_client: Make, router: respx.MockRouter) -> None:
    router.put(f"{BASE}fhir/Task/t1").respond(200, json=OUTCOME, headers={"ETag": 'W/"8"'})
    saved = await make_client().update("Task", rid("t1"), task(1, version=7), version="7")
    assert (saved.id, saved.version) == ("t1", "8")


async def test_location_of_other_type_names_nothing(make_client: Make, router: respx.MockRouter) -> None:
    headers = {"Location": f"{BASE}fhir/OperationOutcome/7", "ETag": 'W/"2"'}
    router.post(f"{BASE}fhir/Observation").respond(201, headers=headers, json=OUTCOME)
    with pytest.raises(errors.InvalidResponse):
        await make_client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)


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


HINT = {"resourceType": "OperationOutcome", "issue": [{"severity": "warning", "code": "invalid", "diagnostics": "hm"}]}
ERROR = {"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "invalid"}]}


@pytest.mark.parametrize(
    ("said", "read", "expected", "reads"),
    [
        (HINT, httpx.Response(200, json=task(1, version=2)), errors.StaleVersion, 1),
        (HINT, httpx.Response(200, json=task(1, version=1)), errors.ServiceRejected, 1),
        (HINT, httpx.Response(404), errors.ServiceRejected, 1),
        (HINT, httpx.Response(503, headers={"Retry-After": "9"}), errors.OutcomeUnknown, 1),
        (HINT, httpx.Response(200, text='{"x": NaN}'), errors.OutcomeUnknown, 1),
        (ERROR, httpx.Response(200, json=task(1, version=2)), errors.ServiceRejected, 0),
    ],
)
async def test_update_rejected_without_error_is_read_first(
    make_client: Make, router: respx.MockRouter, said: dict[str, Any], read: httpx.Response, expected: type, reads: int
) -> None:
    """A stale version lets whoever writes read again, and find that it is so already."""
    router.put(f"{BASE}fhir/Task/t1").respond(422, json=said)
    route = router.get(f"{BASE}fhir/task/t1").mock(return_value=read)
    with pytest.raises(errors.Failure) as caught:
        await make_client().update("Task", rid("t1"), task(1), version="1")
    assert (type(caught.value), route.call_count) == (expected, reads)


@pytest.mark.parametrize(("said", "matches", "expected"), [(HINT, 1, "o1"), (HINT, 0, 422), (HINT, 2, 422), (ERROR, 1, 422)])
async def test_create_rejected_without_error_is_searched_first(
    make_client: Make, router: respx.MockRouter, said: dict[str, Any], matches: int, expected: Any
) -> None:
    ours = [{"system": OURS.system, "value": OURS.value}]
    made = [
        {"resourceType": "Observation", "id": f"o{number + 1}", "meta": {"versionId": "1"}, "identifier": ours}
        for number in range(matches)
    ]
    router.post(f"{BASE}fhir/Observation").respond(422, json=said)
    router.get(f"{BASE}fhir/Observation").respond(json=bundle(*made))
    try:
        found: Any = (await make_client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)).id
    except errors.ServiceRejected as rejection:
        found = rejection.status
    assert found == expected


@pytest.mark.parametrize(("search", "expected"), [("tag", "b1"), ("off", 422)])
async def test_document_rejected_without_error_is_searched_first(
    make_client: Make, router: respx.MockRouter, search: str, expected: Any
) -> None:
    tag = {"system": "https://codes.example/document", "code": "ours"}
    binary = {"resourceType": "Binary", "id": "b1", "meta": {"versionId": "1", "tag": tag}}
    router.post(f"{BASE}fhir/Binary").respond(422, json=HINT)
    router.get(f"{BASE}fhir/Binary").respond(json=bundle(binary))
    client = make_client(document_search=search)
    try:
        found: Any = (await client.upload_document(b"%PDF", "application/pdf", readers=("g1",), name="ours")).id
    except errors.ServiceRejected as rejection:
        found = rejection.status
    assert found == expected


@pytest.mark.parametrize(
    ("content_type", "page"),
    [("application/pdf", "<html>sign in</html>"), ("image/png", "<!DOCTYPE html>"), ("text/plain", "<!-- x --><html>")],
)
async def test_page_in_place_of_a_document_is_told(
    make_client: Make, router: respx.MockRouter, content_type: str, page: str
) -> None:
    """A page of a proxy is no document that the service has changed."""
    router.get(f"{BASE}fhir/Binary/b1").respond(text=page)
    with pytest.raises(errors.InvalidResponse, match="an HTML page"):
        await make_client().read_document(rid("b1"), content_type)
    assert await make_client().read_document(rid("b1"), "text/html") == page.encode()


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


@pytest.mark.parametrize(
    "meta", [[{"security": {"system": f"{BASE}security/read", "code": "g"}}], {"security": {"system": "read", "code": "g"}}]
)
async def test_right_in_another_type_is_shortened(make_client: Make, router: respx.MockRouter, meta: Any) -> None:
    route = router.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1))
    await make_client().update("Task", rid("t1"), task(1, meta=meta), version="1")
    assert exact_json.loads(route.calls.last.request.content)["meta"] == {"security": [{"system": "read", "code": "g"}]}


async def test_put_shortens_rights_by_default_and_only_rights(make_client: Make, router: respx.MockRouter) -> None:
    """The interface has short names in requests; a security label that is no right of the service goes back as it came."""
    route = router.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1))
    label = {"system": "http://hl7.org/fhir/v3/Confidentiality", "code": "N"}
    rights = [{"system": f"{BASE}security/read", "code": "g"}, {"system": "read", "code": "g"}]
    await make_client().update("Task", rid("t1"), task(1, meta={"security": [*rights, label]}), version="1")
    sent = exact_json.loads(route.calls.last.request.content)
    assert sent["meta"]["security"] == [{"system": "read", "code": "g"}, label]


@pytest.mark.parametrize(
    ("changes", "sent", "accepted"),
    [
        ({}, "application/fhir+json", "application/fhir+json, application/json;q=0.9"),
        ({"content_type": "application/json"}, "application/json", "application/json, application/fhir+json;q=0.9"),
    ],
)
async def test_resources_travel_under_the_media_type_set(
    make_client: Make, router: respx.MockRouter, changes: dict[str, Any], sent: str, accepted: str
) -> None:
    route = router.put(f"{BASE}fhir/Task/t1").respond(200, json=task(1))
    await make_client(**changes).update("Task", rid("t1"), task(1), version="1")
    headers = route.calls.last.request.headers
    assert (headers["content-type"], headers["accept"]) == (sent, accepted)


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


async def test_own_read_granted_on_documents_where_set(make_client: Make, router: respx.MockRouter) -> None:
    route = router.post(f"{BASE}fhir/Binary").respond(201, json={"resourceType": "Binary", "id": "b1"}, headers={"ETag": 'W/"1"'})
    await make_client(grant_own_read=True).upload_document(b"%PDF", "application/pdf", readers=("g1",))
    rights = exact_json.loads(route.calls.last.request.content)["meta"]["security"]
    own = [{"system": right, "code": "lab-guid"} for right in ("read", "readhistory", "updatebody")]
    assert rights == [{"system": "read", "code": "g1"}, *own]


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


async def test_sign_in_lost_twice_says_nothing_about_the_resource(
    make_client: Make, router: respx.MockRouter, token_route: respx.Route
) -> None:
    """The sign-in is lost, and lost once more right after its renewal: what is read then is there all the same."""
    token_route.side_effect = [
        httpx.Response(200, json={"access_token": f"t{number}", "refresh_token": f"r{number}"}) for number in range(5)
    ]
    body = {"resourceType": "Patient", "id": "x", "meta": {"versionId": "1"}}
    router.get(f"{BASE}fhir/patient/x").side_effect = [
        httpx.Response(401),
        httpx.Response(401),
        httpx.Response(200, json=body),
    ]
    router.get(f"{BASE}fhir/task").respond(json=bundle())
    assert (await make_client().read("Patient", rid("x"))).body == body


async def test_isolated_401_means_missing_access_right(make_client: Make, router: respx.MockRouter) -> None:
    """A 401 for one resource alone is a missing right."""
    router.get(f"{BASE}fhir/patient/x").respond(401)
    router.get(f"{BASE}fhir/task").respond(json=bundle())
    with pytest.raises(errors.ResourceNotReadable):
        await make_client().read("Patient", rid("x"))


async def test_401_to_a_token_that_was_revoked_meanwhile_says_nothing_of_the_resource(
    make_client: Make, router: respx.MockRouter, token_route: respx.Route
) -> None:
    """Whenever it is asked, its tokens have been revoked; what is asked next, with a new one, is answered."""
    token_route.side_effect = [
        httpx.Response(200, json={"access_token": f"t{number}", "refresh_token": f"r{number}"}) for number in range(1, 9)
    ]
    router.get(f"{BASE}fhir/patient/x").respond(401)

    def answer(request: httpx.Request) -> httpx.Response:
        revoked = request.headers["authorization"] not in {"Bearer t3", "Bearer t5"}
        return httpx.Response(401) if revoked else httpx.Response(200, json=bundle())

    router.get(f"{BASE}fhir/task").mock(side_effect=answer)
    with pytest.raises(errors.ServiceUnavailable, match="its token has been replaced since"):
        await make_client().read("Patient", rid("x"))


async def test_check_requests_one_page(make_client: Make, router: respx.MockRouter) -> None:
    route = router.get(f"{BASE}fhir/task").respond(json=bundle(task(1), onward=f"{BASE}fhir/task?page=2"))
    await make_client().check()
    assert route.call_count == 1


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
    make_client: Make, router: respx.MockRouter, onward: str | None, address: str, expected: dict[str, str]
) -> None:
    page = bundle(task(1), onward=onward)
    page["entry"][0]["fullUrl"] = address
    route = router.get(url__startswith=BASE).respond(json=page)
    assert await make_client().foreign_links() == expected
    assert route.calls.last.request.url.params["_count"] == "1"


async def test_foreign_links_found_without_page_size(make_client: Make, router: respx.MockRouter) -> None:
    pages = {"json": bundle(task(1), onward="http://internal:8080/x")}
    router.get(url__startswith=BASE, params__contains={"_count": "1"}).respond(400)
    router.get(url__startswith=BASE).respond(**pages)
    assert await make_client().foreign_links() == {"next": "http://internal:8080"}


# --- Retry-After


async def test_wait_asked_once_holds_for_all_calls(make_client: Make, router: respx.MockRouter, clock: VirtualClock) -> None:
    """What one request was told, all the others of the process obey, reads too; the end is said in the failure."""
    made = {"resourceType": "Observation", "id": "o", "meta": {"versionId": "1"}}
    route = router.post(f"{BASE}fhir/Observation")
    route.side_effect = [httpx.Response(503, headers={"Retry-After": "15"}), httpx.Response(201, json=made)]
    reads = router.get(url__startswith=BASE).respond(json=bundle())
    client = make_client(max_concurrency=1)
    calls = [client.create("Observation", {"resourceType": "Observation"}) for _ in range(60)]
    found = await asyncio.gather(*calls, client.requested_order_tasks(), return_exceptions=True)
    assert [type(each) for each in found] == [errors.ServiceUnavailable] + [errors.ServicePaused] * 60
    assert all("until 2026-03-01 12:00:15 UTC" in str(each) for each in found)
    assert (route.call_count, reads.call_count) == (1, 0)
    clock.advance(14)
    with pytest.raises(errors.ServiceUnavailable) as caught:
        await client.create("Observation", {"resourceType": "Observation"})
    assert caught.value.retry_after == 1.0
    clock.advance(1)
    assert (await client.create("Observation", {"resourceType": "Observation"})).id == "o"


async def test_wait_forgotten_when_our_clock_is_set_back(
    make_client: Make, router: respx.MockRouter, clock: VirtualClock
) -> None:
    route = router.get(url__startswith=BASE)
    route.side_effect = [httpx.Response(429, headers={"Retry-After": "600"}), httpx.Response(200, json=bundle())]
    client = make_client()
    with pytest.raises(errors.ServiceUnavailable):
        await client.requested_order_tasks()
    clock.advance(days=-1)
    assert await client.requested_order_tasks() == ()


# --- the service's clock


async def test_clock_offset_read_from_date_header(make_client: Make, router: respx.MockRouter, clock: VirtualClock) -> None:
    ahead = clock.now() + timedelta(minutes=6)
    router.get(url__startswith=BASE).respond(json=bundle(), headers={"Date": format_datetime(ahead, usegmt=True)})
    client = make_client()
    assert client.service_clock_offset() is None
    await client.check()
    assert client.service_clock_offset() == timedelta(minutes=6)


@pytest.mark.parametrize("headers", [{}, {"Date": "soon"}, {"Date": "Sun, 01 Mar 2026 11:00:00 GMT", "Age": "3600"}])
async def test_no_clock_offset_without_own_date(make_client: Make, router: respx.MockRouter, headers: dict[str, str]) -> None:
    router.get(url__startswith=BASE).respond(json=bundle(), headers=headers)
    client = make_client()
    await client.check()
    assert client.service_clock_offset() is None
