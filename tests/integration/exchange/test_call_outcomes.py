"""What the client makes of answers that say no, too late, nothing, or something else: done, not done, or unknown."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest
import respx

from lab_agent.exchange.service import SavedResource
from lab_agent.shared import errors
from lab_agent.shared.ids import ResourceId as rid  # noqa: N813 - it stands in every call
from tests.harness.clock import VirtualClock
from tests.integration.exchange.conftest import BASE, OURS, Service, bundle, task, tokens

OUTCOME = {"resourceType": "OperationOutcome", "issue": [{"severity": "information", "code": "informational"}]}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (httpx.Response(503), errors.OutcomeUnknown),
        (httpx.Response(200, text="<html>"), errors.InvalidResponse),
        (httpx.Response(200, json={"resourceType": "Observation"}), errors.InvalidResponse),
        (httpx.Response(200, json={"resourceType": "OperationOutcome"}), errors.InvalidResponse),
        (httpx.Response(302, headers={"Location": "https://evil.example/"}), errors.OutcomeUnknown),
        (httpx.ConnectError("x"), errors.ServiceUnavailable),
        (httpx.PoolTimeout("x"), errors.ServiceUnavailable),
        (httpx.ReadTimeout("x"), errors.OutcomeUnknown),
        (httpx.WriteError("x"), errors.OutcomeUnknown),
        (httpx.RemoteProtocolError("x"), errors.OutcomeUnknown),
    ],
)
async def test_write_sent_once_and_failure_states_possible_outcome(service: Service, answer: Any, expected: type) -> None:
    route = service.post(f"{BASE}fhir/Observation").mock(side_effect=[answer])
    with pytest.raises(errors.Failure) as caught:
        await service.client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert type(caught.value) is expected
    assert route.call_count == 1


async def test_create_answered_with_headers_alone_is_done(service: Service) -> None:
    """A 2xx with Location and ETag says that it was done, whatever its body is; the id is percent-encoded there."""
    route, client = service.post(f"{BASE}fhir/Observation"), service.client()

    async def create(location: str, **body: Any) -> SavedResource:
        route.respond(201, headers={"Location": f"{BASE}fhir/{location}", "ETag": 'W/"2"'}, **body)
        return await client.create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)

    for body in ({"json": OUTCOME}, {"text": "<html>created</html>"}, {"text": '{"x": NaN}'}, {}):
        saved = await create("Observation/o9", **body)
        assert (saved.id, saved.version, saved.created) == ("o9", "2", True), body
    assert (await create("Observation/o%209%7C%D0%B6")).id == "o 9|ж"
    with pytest.raises(errors.InvalidResponse):
        await create("OperationOutcome/7", json=OUTCOME)


async def test_update_answered_with_outcome_and_etag_is_done(service: Service) -> None:
    """The version in what we sent is the old one; it must not be taken for the new one where nothing is answered."""
    route = service.put(f"{BASE}fhir/Task/t1").respond(200, json=OUTCOME, headers={"ETag": 'W/"8"'})
    saved = await service.client().update("Task", rid("t1"), task(1, version=7), version="7")
    assert (saved.id, saved.version) == ("t1", "8")
    route.respond(204)
    with pytest.raises(errors.InvalidResponse):
        await service.client().update("Task", rid("t1"), task(1, version=7), version="7")


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
    service: Service, said: dict[str, Any], read: httpx.Response, expected: type, reads: int
) -> None:
    """A stale version lets whoever writes read again, and find that it is so already."""
    service.put(f"{BASE}fhir/Task/t1").respond(422, json=said)
    route = service.get(f"{BASE}fhir/task/t1").mock(return_value=read)
    with pytest.raises(errors.Failure) as caught:
        await service.client().update("Task", rid("t1"), task(1), version="1")
    assert (type(caught.value), route.call_count) == (expected, reads)


@pytest.mark.parametrize(("said", "matches", "expected"), [(HINT, 1, "o1"), (HINT, 0, 422), (HINT, 2, 422), (ERROR, 1, 422)])
async def test_create_rejected_without_error_is_searched_first(
    service: Service, said: dict[str, Any], matches: int, expected: Any
) -> None:
    made = {
        "resourceType": "Observation",
        "meta": {"versionId": "1"},
        "identifier": [{"system": OURS.system, "value": OURS.value}],
    }
    service.post(f"{BASE}fhir/Observation").respond(422, json=said)
    service.get(f"{BASE}fhir/Observation").respond(json=bundle(*({**made, "id": f"o{each + 1}"} for each in range(matches))))
    created = service.client().create("Observation", {"resourceType": "Observation"}, if_none_exist=OURS)
    assert await id_or_status(created) == expected


async def id_or_status(saved: Awaitable[SavedResource]) -> str | int | None:
    try:
        return (await saved).id
    except errors.ServiceRejected as rejection:
        return rejection.status


@pytest.mark.parametrize(("search", "expected"), [("tag", "b1"), ("off", 422)])
async def test_document_rejected_without_error_is_searched_first(service: Service, search: str, expected: Any) -> None:
    tag = {"system": "https://codes.example/document", "code": "ours"}
    binary = {"resourceType": "Binary", "id": "b1", "meta": {"versionId": "1", "tag": tag}}
    service.post(f"{BASE}fhir/Binary").respond(422, json=HINT)
    service.get(f"{BASE}fhir/Binary").respond(json=bundle(binary))
    client = service.client(document_search=search)
    assert await id_or_status(client.upload_document(b"%PDF", "application/pdf", readers=("g1",), name="ours")) == expected


async def test_page_in_place_of_a_document_is_told(service: Service) -> None:
    """A page of a proxy is no document that the service has changed."""
    route, client = service.get(f"{BASE}fhir/Binary/b1"), service.client()
    pages = {"application/pdf": "<html>sign in</html>", "image/png": "<!DOCTYPE html>", "text/plain": "<!-- x --><html>"}
    for content_type, page in pages.items():
        route.respond(text=page)
        with pytest.raises(errors.InvalidResponse, match="an HTML page"):
            await client.read_document(rid("b1"), content_type)
        assert await client.read_document(rid("b1"), "text/html") == page.encode()


async def test_repeated_401_requires_authentication(service: Service, token_route: respx.Route) -> None:
    service.route(url__startswith=BASE).respond(401)
    with pytest.raises(errors.AuthenticationRequired):
        await service.client().read("Task", rid("t1"))
    with pytest.raises(errors.AuthenticationRequired):
        await service.client().requested_order_tasks()


async def test_sign_in_lost_twice_says_nothing_about_the_resource(service: Service, token_route: respx.Route) -> None:
    """The sign-in is lost, and lost once more right after its renewal: what is read then is there all the same.

    A 401 for one resource alone is a missing right.
    """
    token_route.side_effect = tokens()
    body = {"resourceType": "Patient", "id": "x", "meta": {"versionId": "1"}}
    route = service.get(f"{BASE}fhir/patient/x")
    route.side_effect = [httpx.Response(401), httpx.Response(401), httpx.Response(200, json=body)]
    service.get(f"{BASE}fhir/task").respond(json=bundle())
    assert (await service.client().read("Patient", rid("x"))).body == body
    route.side_effect = [httpx.Response(401)] * 9
    with pytest.raises(errors.ResourceNotReadable):
        await service.client().read("Patient", rid("x"))


async def test_401_to_a_token_that_was_revoked_meanwhile_says_nothing_of_the_resource(
    service: Service, token_route: respx.Route
) -> None:
    """Whenever it is asked, its tokens have been revoked; what is asked next, with a new one, is answered."""
    token_route.side_effect = tokens()
    service.get(f"{BASE}fhir/patient/x").respond(401)

    def answer(request: httpx.Request) -> httpx.Response:
        revoked = request.headers["authorization"] not in {"Bearer t3", "Bearer t5"}
        return httpx.Response(401) if revoked else httpx.Response(200, json=bundle())

    service.get(f"{BASE}fhir/task").mock(side_effect=answer)
    with pytest.raises(errors.ServiceUnavailable, match="its token has been replaced since"):
        await service.client().read("Patient", rid("x"))


async def test_get_retried_a_few_times(service: Service) -> None:
    """But neither for what is missing, nor where the service asks for a long wait."""
    route, client = service.get(f"{BASE}fhir/task/t1"), service.client()
    route.side_effect = [httpx.Response(500), httpx.ReadTimeout("x"), httpx.Response(200, json=task(1))]
    assert (await client.read("Task", rid("t1"))).id == "t1"
    for answer, expected, calls in (
        (httpx.Response(500), errors.ServiceUnavailable, 3),
        (httpx.Response(404), errors.ResourceNotReadable, 1),
        (httpx.Response(429, headers={"Retry-After": "30"}), errors.ServiceUnavailable, 1),
    ):
        route.calls.clear()
        route.side_effect = [answer] * 9
        with pytest.raises(expected) as caught:
            await client.read("Task", rid("t1"))
        assert route.call_count == calls
    assert caught.value.retry_after == 30.0


async def test_wait_asked_once_holds_for_all_calls(service: Service, clock: VirtualClock) -> None:
    """What one request was told, all the others of the process obey, reads too; the end is said in the failure."""
    made = {"resourceType": "Observation", "id": "o", "meta": {"versionId": "1"}}
    route = service.post(f"{BASE}fhir/Observation")
    route.side_effect = [httpx.Response(503, headers={"Retry-After": "15"}), httpx.Response(201, json=made)]
    reads = service.get(url__startswith=BASE).respond(json=bundle())
    client = service.client(max_concurrency=1)
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


async def test_wait_forgotten_when_our_clock_is_set_back(service: Service, clock: VirtualClock) -> None:
    route = service.get(url__startswith=BASE)
    route.side_effect = [httpx.Response(429, headers={"Retry-After": "600"}), httpx.Response(200, json=bundle())]
    client = service.client()
    with pytest.raises(errors.ServiceUnavailable):
        await client.requested_order_tasks()
    clock.advance(days=-1)
    assert await client.requested_order_tasks() == ()
