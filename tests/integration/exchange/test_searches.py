"""Searches: pages that go on, are cut off or lead elsewhere, rows that were not asked for, and what no parser reads."""

from decimal import Decimal
from typing import Any

import pytest
import respx

from lab_agent.exchange.client import ExchangeClient
from lab_agent.exchange.service import SearchKind, UnfilteredSearch
from lab_agent.shared import errors, exact_json
from lab_agent.shared.ids import ResourceId as rid  # noqa: N813 - it stands in every call
from tests.harness.clock import VirtualClock
from tests.integration.exchange.conftest import BASE, OURS, Service, bundle, task

CONTRACTS = "https://codes.example/contract"


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
async def test_pages_followed_and_duplicates_counted_once(service: Service, onward: str) -> None:
    service.get(f"{BASE}fhir/task", params={"status": "requested"}).respond(json=bundle(task(1), task(2), onward=onward))
    service.get(f"{BASE}fhir/task", params={"page": "2"}).respond(json=bundle(task(2, version=2), task(3)))
    found = await service.client().requested_order_tasks()
    assert [(each["id"], each["meta"]["versionId"]) for each in found] == [("t1", "1"), ("t2", "2"), ("t3", "1")]


@pytest.mark.parametrize(
    "onward", ["https://evil.example/x", "http://service.example/api/x", "//evil.example/x", "https://service.example:444/x"]
)
async def test_foreign_next_link_rejected_without_request(service: Service, onward: str) -> None:
    service.get(url__startswith=BASE).respond(json=bundle(task(1), onward=onward))
    elsewhere = service.route(host="evil.example").respond(200)
    client = service.client()
    assert [each["id"] for each in await client.requested_order_tasks()] == ["t1"]
    assert isinstance(client.order_tasks_cut_off(), errors.ForeignLink)
    assert not elsewhere.called
    assert len(service.calls) == 2  # the token, and the first page
    with pytest.raises(errors.ForeignLink):
        await client.line_tasks(rid("o1"))


UNUSABLE = ("", "  ", "http://[bad", "https://service.example:99999/api/x", "urn:uuid:1", "fhir/task?a b", "page=2", None, 7)


@pytest.mark.parametrize("link", [*UNUSABLE, *(f"fhir/task?page={page}" for page in ("404", "500", "html", "outcome"))])
async def test_unusable_next_link_cuts_off_and_keeps_rows(service: Service, link: object) -> None:
    """What cannot be reached behind a page that was read hides what follows: the search itself was answered."""
    answers = {
        "html": {"text": "<html>"},
        "500": {"status_code": 500},
        "outcome": {"json": outcome()},
        "404": {"status_code": 404},
    }
    for page, answer in answers.items():
        service.get(f"{BASE}fhir/task", params={"page": page}).respond(**answer)
    service.get(f"{BASE}page=2").respond(404)
    service.get(f"{BASE}fhir/task").respond(json={**bundle(task(1)), "link": [{"relation": "next", "url": link}]})
    client = service.client()
    assert [each["id"] for each in await client.requested_order_tasks()] == ["t1"]
    assert type(client.order_tasks_cut_off()) is errors.ServiceUnavailable
    with pytest.raises(errors.ServiceUnavailable):
        await client.line_tasks(rid("o1"))


async def test_next_page_without_right_is_no_unsupported_search(service: Service) -> None:
    """The answers stay asked for: a search whose first page was read is one that the service supports."""
    service.get(url__startswith=BASE, params={"page": "2"}).respond(404)
    service.get(url__startswith=BASE).respond(json=bundle(onward="?page=2"))
    client = service.client()
    for _ in range(2):
        with pytest.raises(errors.ServiceUnavailable):
            await client.questionnaire_responses([rid("p1")])


@pytest.mark.parametrize(("status", "headers"), [(401, {}), (503, {"Retry-After": "30"})])
async def test_next_page_refused_to_everybody_fails_the_search(service: Service, status: int, headers: dict[str, str]) -> None:
    service.get(url__startswith=BASE, params={"page": "2"}).respond(status, headers=headers)
    service.get(url__startswith=BASE).respond(json=bundle(task(1), onward="?page=2"))
    with pytest.raises(errors.TemporaryFailure):
        await service.client().requested_order_tasks()


def outcome(*issues: tuple[str, str]) -> dict[str, Any]:
    listed = [{"severity": severity, "code": code, "diagnostics": "nothing found"} for severity, code in issues]
    return {"resourceType": "OperationOutcome", "issue": listed}


async def test_outcome_in_place_of_bundle_is_empty_or_an_error(service: Service) -> None:
    route, client = service.get(url__startswith=BASE), service.client()
    hint = ("information", "informational")
    for found in ([hint], [("error", "not-found")], [("warning", "not-found"), hint]):
        route.respond(json=outcome(*found))
        assert await client.requested_order_tasks() == await client.line_tasks(rid("o1")) == ()
    for issues in ([], [("error", "processing")], [("information", "suppressed")], [("warning", "informational")]):
        await assert_error(client, route, issues)
    await assert_error(client, route, [("error", "not-found"), ("error", "security")])
    route.respond(json=task(1))
    with pytest.raises(errors.ServiceUnavailable):
        await client.requested_order_tasks()


async def assert_error(client: ExchangeClient, route: respx.Route, issues: list[tuple[str, str]]) -> None:
    route.respond(content=b"\xef\xbb\xbf" + exact_json.dumps(outcome(*issues)))
    with pytest.raises(errors.ServiceUnavailable) as caught:
        await client.requested_order_tasks()
    assert [issue.code for issue in caught.value.issues] == [code for _, code in issues]


@pytest.mark.parametrize("onward", [f"{BASE}fhir/task?page=2", f"{BASE}fhir/task?status=requested&code=OrderProcessingTask"])
async def test_circular_pages_are_told_and_an_error(service: Service, onward: str) -> None:
    """A next link to a page that was read, be it its own, hides what follows; it never ends the search in silence."""
    route = service.get(f"{BASE}fhir/task").respond(json=bundle(task(1), onward=onward))
    client = service.client()
    assert len(await client.requested_order_tasks()) == 1
    assert "circle" in str(client.order_tasks_cut_off())
    assert route.call_count <= 2
    with pytest.raises(errors.ServiceUnavailable):
        await client.line_tasks(rid("o1"))
    route.respond(json=bundle(task(1)))
    await client.requested_order_tasks()
    assert client.order_tasks_cut_off() is None


async def test_stale_status_becomes_a_finding_after_index_lag(service: Service, clock: VirtualClock) -> None:
    """An index may be a minute behind the resources: only a row that stays wrong says that the service does not filter."""
    service.get(url__startswith=BASE).respond(json=bundle(task(1), task(2, status="completed")))
    client = service.client()
    await client.requested_order_tasks()
    assert client.take_search_findings() == {SearchKind.ORDER_TASKS: True}
    clock.advance(180)
    await client.requested_order_tasks()
    assert client.take_search_findings() == {SearchKind.ORDER_TASKS: False}
    assert client.take_search_findings() == {}


async def test_ignored_criterion_raises_with_own_rows(service: Service) -> None:
    """Taking what a lenient service answers for ours would lose a result."""
    ours, other = (task(number, partOf=[{"reference": f"Task/{of}"}]) for number, of in ((1, "o1"), (2, "o2")))
    route, client = service.get(url__startswith=BASE).respond(json=bundle(ours, other, task(3))), service.client()
    with pytest.raises(UnfilteredSearch) as raised:
        await client.line_tasks(rid("o1"))
    assert raised.value.rows == (ours,)
    assert client.take_search_findings() == {SearchKind.LINE_TASKS: False}
    answers = [
        {"resourceType": "QuestionnaireResponse", "id": f"q{each}", "subject": {"reference": f"procedurerequest/p{each}"}}
        for each in (1, 2)
    ]
    route.respond(json=bundle(*answers))
    with pytest.raises(UnfilteredSearch) as raised:
        await client.questionnaire_responses([rid("p1")])
    assert raised.value.rows == (answers[0],)
    codes = [
        {"resourceType": "Contract", "id": f"c{each}", "identifier": {"system": CONTRACTS, "value": f"C-{each}"}}
        for each in (1, 2)
    ]
    route.respond(json=bundle(*codes))
    client.take_search_findings()
    assert await client.contract_ids("C-1") == ("c1",)
    assert client.take_search_findings() == {SearchKind.BY_IDENTIFIER: False}
    named = {"resourceType": "Observation", "id": "o1", "identifier": [{"system": OURS.system, "value": "another"}]}
    route.respond(json=bundle(named))
    assert await client.find("Observation", OURS) == ()


async def test_contested_line_is_read_by_its_id(service: Service) -> None:
    part_of = [{"reference": "Task/o1"}]
    copies = [task(1, meta={}, partOf=part_of, status=status) for status in ("requested", "on-hold")]
    service.get(f"{BASE}fhir/task", params={"part-of": "task/o1"}).respond(json=bundle(*copies))
    now = task(1, version=4, partOf=part_of, status="on-hold")
    route = service.get(f"{BASE}fhir/task/t1").respond(json=now)
    client = service.client()
    assert await client.line_tasks(rid("o1")) == (now,)
    route.respond(404)
    assert await client.line_tasks(rid("o1")) == ()
    route.respond(403)
    with pytest.raises(errors.InvalidResponse):
        await client.line_tasks(rid("o1"))
    route.respond(429, headers={"Retry-After": "60"})
    with pytest.raises(errors.ServiceUnavailable):
        await client.line_tasks(rid("o1"))


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


async def test_poisoned_task_spoils_only_itself(service: Service, poisoned_task: bytes) -> None:
    good = [exact_json.dumps(task(number, weight=Decimal("1.20"))) for number in (1, 3)]
    service.get(url__startswith=BASE).respond(content=page_of(good[0], poisoned_task, good[1]))
    client = service.client()
    assert [each["id"] for each in await client.requested_order_tasks()] == ["t1", "t3"]
    assert client.unreadable_order_tasks() == ("t2",)
    service.get(url__startswith=BASE).respond(content=page_of(*good))
    await client.requested_order_tasks()
    assert client.unreadable_order_tasks() == ()


async def test_poisoned_task_fails_its_own_read_and_lines(service: Service, poisoned_task: bytes) -> None:
    """An order without one of its lines is another order; a resource that we look for may be the unreadable one."""
    service.get(f"{BASE}fhir/task/t2").respond(content=poisoned_task)
    service.get(url__startswith=BASE).respond(content=page_of(exact_json.dumps(task(1)), poisoned_task))
    with pytest.raises(errors.InvalidResponse, match="Task t2"):
        await service.client().line_tasks(rid("t0"))
    with pytest.raises(errors.InvalidResponse):
        await service.client().read("Task", rid("t2"))


@pytest.mark.parametrize("end", [10, -1, -40])
async def test_page_cut_off_is_temporary_failure(service: Service, end: int) -> None:
    service.get(url__startswith=BASE).respond(content=page_of(exact_json.dumps(task(1)), exact_json.dumps(task(2)))[:end])
    with pytest.raises(errors.ServiceUnavailable):
        await service.client().requested_order_tasks()


@pytest.mark.parametrize("status", [400, 404, 501])
async def test_unsupported_response_search_is_remembered(service: Service, clock: VirtualClock, status: int) -> None:
    """A rejected search of questionnaire responses is remembered, and tried again after an hour; one switched off is not sent."""
    assert await service.client(questionnaire_search="off").questionnaire_responses([rid("p1")]) is None
    route = service.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(status)
    client = service.client()
    assert await client.questionnaire_responses([rid("p1"), rid("p2")]) is None
    assert await client.questionnaire_responses([rid("p3")]) is None
    assert route.call_count == 1
    assert str(route.calls.last.request.url) == f"{BASE}fhir/questionnaireresponse?subject=procedurerequest/p1"
    route.respond(json=bundle())
    clock.advance(hours=1)
    assert await client.questionnaire_responses([rid("p3")]) == ()


async def test_response_search_without_right_is_not_remembered(service: Service) -> None:
    """The answers of a clinic are not done without because of a right that can still be granted."""
    route = service.get(url__startswith=f"{BASE}fhir/questionnaireresponse").respond(403)
    client = service.client()
    with pytest.raises(errors.ServiceRejected) as caught:
        await client.questionnaire_responses([rid("p1")])
    assert caught.value.may_pass
    route.respond(json=bundle())
    assert await client.questionnaire_responses([rid("p1")]) == ()
