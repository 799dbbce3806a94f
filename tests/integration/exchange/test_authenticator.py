import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import parse_qs

import httpx
import pytest
import respx

from lab_agent.exchange.authenticator import Authenticator, Credential
from lab_agent.exchange.token_client import CodeGrant
from lab_agent.shared import errors
from lab_agent.store.credential_records import StoredToken

Make = Callable[..., Authenticator]
TOKEN = "https://auth.example/connect/token"
CODE = {"grant": "authorization_code", "redirect_uri": "https://lab.example/cb"}


def answer(number: int, **more: Any) -> httpx.Response:
    return httpx.Response(200, json={"access_token": f"t{number}", "refresh_token": f"r{number}", **more})


def refused(code: str = "invalid_grant") -> httpx.Response:
    return httpx.Response(400, json={"error": code, "error_description": "user Smith is locked"})


def forms(route: respx.Route) -> list[dict[str, str]]:
    return [{name: found[0] for name, found in parse_qs(call.request.content.decode()).items()} for call in route.calls]


@pytest.fixture
def route(router: respx.MockRouter) -> respx.Route:
    return router.post(TOKEN)


CLIENT = {"client_id": "lab", "client_secret": "s3cret"}


def stored(generation: int = 1, **changes: Any) -> StoredToken:
    return StoredToken(**{"generation": generation, "access_token": "t1", "refresh_token": "r1", "expires_at": None, **changes})


async def signed_in(make_tokens: Make, store: Any, **grant: Any) -> tuple[Authenticator, Credential]:
    """Somebody whose token is stored, and the credential that it gives."""
    store.oauth_tokens.token = stored()
    tokens = make_tokens(**grant)
    return tokens, await tokens.credential()


def held_back(route: respx.Route) -> tuple[asyncio.Event, asyncio.Event]:
    """Let the route wait with its answer; events for that it is asked, and may answer."""
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        asked.set()
        await let_go.wait()
        return answer(2)

    route.side_effect = slow
    return asked, let_go


async def test_password_grant_requests_and_stores_token(make_tokens: Make, route: respx.Route, store: Any, clock: Any) -> None:
    route.respond(content=b"\xef\xbb\xbf" + answer(1).content)
    tokens = make_tokens()
    assert [(await tokens.credential()).header for _ in range(2)] == ["Bearer t1"] * 2
    given = {"grant_type": "password", "username": "u", "password": "p", "scope": "offline_access"}
    assert forms(route) == [{**CLIENT, **given}]
    now = clock.now()
    assert store.oauth_tokens.token == stored(signed_in_at=now, obtained_at=now)
    assert store.oauth_tokens.lease is None


async def test_other_grants_ask_for_no_refresh_token(make_tokens: Make, route: respx.Route) -> None:
    """Basic authentication needs no token at all, and a code one that somebody signs in for."""
    tokens = make_tokens(grant="basic", username="käse", password="p:w")
    credential = await tokens.credential()
    assert credential.header == "Basic a8Okc2U6cDp3"
    with pytest.raises(errors.AuthenticationRequired):
        await tokens.renew_credential(credential)
    with pytest.raises(errors.AuthenticationRequired, match="lab-agent login"):
        await make_tokens(**CODE).credential()
    assert not route.called
    route.respond(json={"access_token": "t1"})
    tokens = make_tokens(grant="client_credentials", scope="offline_access lab")
    await tokens.renew_credential(await tokens.credential())
    assert forms(route) == [{"grant_type": "client_credentials", **CLIENT, "scope": "lab"}] * 2


async def test_code_exchanged_with_pkce_verifier(make_tokens: Make, route: respx.Route, store: Any) -> None:
    route.side_effect = [answer(1, expires_in="60")]
    tokens = make_tokens(**CODE)
    await tokens.exchange_code(CodeGrant("c o+de", "verifier"))
    given = {"code": "c o+de", "redirect_uri": "https://lab.example/cb", "code_verifier": "verifier"}
    assert forms(route) == [{"grant_type": "authorization_code", **CLIENT, **given}]
    assert store.oauth_tokens.token.expires_at - tokens.clock.now() == timedelta(seconds=60)
    assert (await tokens.credential()).header == "Bearer t1"


async def test_early_refresh_rotates_and_stores_before_use(make_tokens: Make, route: respx.Route, store: Any, clock: Any) -> None:
    route.side_effect = [answer(1, expires_in=600), answer(2, expires_in=600)]
    tokens = make_tokens(refresh_ahead=60)
    await tokens.credential()
    clock.advance(539)
    assert (await tokens.credential()).header == "Bearer t1"
    clock.advance(1)
    assert (await tokens.credential()).header == "Bearer t2"
    assert (store.oauth_tokens.token.refresh_token, store.oauth_tokens.token.generation) == ("r2", 2)
    signed_in, refreshed = store.oauth_tokens.token.signed_in_at, store.oauth_tokens.token.obtained_at
    assert refreshed - signed_in == timedelta(seconds=540)
    assert forms(route)[1] == {"grant_type": "refresh_token", **CLIENT, "refresh_token": "r1"}


async def test_short_lived_token_not_refreshed_every_call(make_tokens: Make, route: respx.Route, clock: Any) -> None:
    """One that is refreshed ahead of its time is used as long as that fails."""
    route.side_effect = [answer(1, expires_in=20)]
    tokens = make_tokens(refresh_ahead=60)
    for _ in range(5):
        await tokens.credential()
        clock.advance(1)
    assert route.call_count == 1
    clock.advance(15)
    route.side_effect = [answer(1, expires_in=600), httpx.ConnectError("x"), httpx.ConnectError("x")]
    await tokens.credential()
    clock.advance(550)
    for _ in range(3):
        assert (await tokens.credential()).header == "Bearer t1"
    assert route.call_count == 3
    clock.advance(51)
    with pytest.raises(errors.ServiceUnavailable):
        await tokens.credential()


async def test_refresh_without_new_refresh_token_keeps_old(make_tokens: Make, route: respx.Route, store: Any) -> None:
    route.respond(json={"access_token": "t2"})
    tokens, old = await signed_in(make_tokens, store, **CODE)
    await tokens.renew_credential(old)
    assert (store.oauth_tokens.token.access_token, store.oauth_tokens.token.refresh_token) == ("t2", "r1")


async def test_second_process_reads_stored_token(make_tokens: Make, route: respx.Route, store: Any) -> None:
    """Of two processes one refreshes, however many callers it has, and the other reads what it stored."""
    store.oauth_tokens.token = stored()
    asked, let_go = held_back(route)
    processes = [make_tokens(owner, **CODE) for owner in ("one", "other")]
    refused = [await each.credential() for each in processes]
    renewals = [each.renew_credential(old) for each, old in zip(processes, refused, strict=True) for _ in range(20)]
    renewed = asyncio.gather(*renewals)
    await asked.wait()
    let_go.set()
    assert {each.header for each in await renewed} == {"Bearer t2"}
    assert route.call_count == 1


async def test_lease_of_dead_process_taken_after_expiry(make_tokens: Make, route: respx.Route, store: Any, clock: Any) -> None:
    store.oauth_tokens.acquire_refresh_lease("dead", now=clock.now(), lease=timedelta(seconds=30))
    route.side_effect = [answer(2)]
    tokens, old = await signed_in(make_tokens, store, **CODE)
    waiting = asyncio.create_task(tokens.renew_credential(old))
    await asyncio.sleep(0)
    assert not route.called
    clock.advance(31)
    assert (await waiting).header == "Bearer t2"


async def test_refresh_lease_outlasts_all_requests(make_tokens: Make, route: respx.Route, store: Any, clock: Any) -> None:
    leases: list[float] = []

    def lost(request: httpx.Request) -> httpx.Response:
        leases.append((store.oauth_tokens.lease[1] - clock.now()).total_seconds())
        if len(leases) == 3:
            return answer(2)
        clock.advance(5)  # the longest that a call of this client takes
        if len(leases) == 1:
            raise httpx.ReadTimeout("lost")
        return refused()

    route.side_effect = lost
    tokens, old = await signed_in(make_tokens, store)
    await tokens.renew_credential(old)
    assert [form["grant_type"] for form in forms(route)] == ["refresh_token", "refresh_token", "password"]
    assert all(lease > 5 for lease in leases)


async def test_refresh_with_lost_reply_retried_once(make_tokens: Make, route: respx.Route, store: Any) -> None:
    route.side_effect = [httpx.ReadTimeout("lost"), answer(2), httpx.ReadTimeout("lost"), refused()]
    tokens, first = await signed_in(make_tokens, store, **CODE)
    old = await tokens.renew_credential(first)
    assert old.header == "Bearer t2"
    for _ in range(3):
        with pytest.raises(errors.AuthenticationRequired, match="invalid_grant") as caught:
            await tokens.renew_credential(old)
        assert "Smith" not in str(caught.value)
    assert [form["refresh_token"] for form in forms(route)] == ["r1", "r1", "r2", "r2"]
    assert store.oauth_tokens.lease is None


async def test_new_login_restores_every_process(make_tokens: Make, route: respx.Route, store: Any) -> None:
    """One whose reply is lost has to be repeated: a code works once."""
    route.side_effect = [refused(), httpx.ReadTimeout("x"), answer(2)]
    worker, old = await signed_in(make_tokens, store, **CODE)
    command = make_tokens("command", **CODE)
    with pytest.raises(errors.AuthenticationRequired):
        await worker.renew_credential(old)
    with pytest.raises(errors.AuthenticationRequired, match="login"):
        await command.exchange_code(CodeGrant("code", None))
    await command.exchange_code(CodeGrant("another", None))
    assert (await worker.renew_credential(old)).header == "Bearer t2"
    assert route.call_count == 3


async def test_lost_reply_during_outage_is_temporary(make_tokens: Make, route: respx.Route, store: Any, clock: Any) -> None:
    route.side_effect = [httpx.ReadTimeout("lost"), httpx.ConnectError("away"), answer(2)]
    tokens, old = await signed_in(make_tokens, store, **CODE)
    with pytest.raises(errors.ServiceUnavailable):
        await tokens.renew_credential(old)
    clock.advance(2)
    assert (await tokens.renew_credential(old)).header == "Bearer t2"


@pytest.mark.parametrize("failure", [httpx.Response(503), httpx.Response(302), httpx.ConnectError("away")])
async def test_unavailable_token_endpoint_asked_seldom(make_tokens: Make, route: respx.Route, clock: Any, failure: Any) -> None:
    route.side_effect = [failure] * 99
    tokens = make_tokens()
    for _ in range(100):
        with pytest.raises(errors.ServiceUnavailable) as caught:
            await tokens.credential()
        assert caught.value.retry_after is None or 0 < caught.value.retry_after <= 60
        clock.advance(0.1)
    assert route.call_count <= 4
    route.side_effect = [answer(1)]
    clock.advance(60)
    assert (await tokens.credential()).header == "Bearer t1"


async def test_wrong_password_not_retried(make_tokens: Make, route: respx.Route, store: Any, clock: Any) -> None:
    """It is used where a refresh is rejected, and then asked for seldom."""
    route.side_effect = [refused(), answer(2), *[refused()] * 4, answer(1)]
    tokens, first = await signed_in(make_tokens, store)
    old = await tokens.renew_credential(first)
    assert old.header == "Bearer t2"
    for calls in (4, 6):
        for _ in range(5):
            with pytest.raises(errors.AuthenticationRequired):
                await tokens.renew_credential(old)
        assert route.call_count == calls
        clock.advance(61)
    assert (await tokens.renew_credential(old)).header == "Bearer t1"


async def test_unstorable_token_neither_used_nor_lost(make_tokens: Make, route: respx.Route, store: Any) -> None:
    tokens, old = await signed_in(make_tokens, store, **CODE)

    def breaks(request: httpx.Request) -> httpx.Response:
        store.failures = [errors.StoreUnreachableError()]
        return answer(2)

    route.side_effect = breaks
    with pytest.raises(errors.StoreUnreachableError):
        await tokens.renew_credential(old)
    assert store.oauth_tokens.token == stored()
    assert (await tokens.renew_credential(old)).header == "Bearer t2"
    assert store.oauth_tokens.token.refresh_token == "r2"
    assert route.call_count == 1


async def test_concurrently_stored_token_generation_wins(make_tokens: Make, route: respx.Route, store: Any) -> None:
    tokens, old = await signed_in(make_tokens, store, **CODE)

    def late(request: httpx.Request) -> httpx.Response:
        store.oauth_tokens.token = stored(2, access_token="theirs", refresh_token="r9")
        return answer(2)

    route.side_effect = late
    assert (await tokens.renew_credential(old)).header == "Bearer theirs"


async def test_cancelled_caller_does_not_abort_refresh(make_tokens: Make, route: respx.Route, store: Any) -> None:
    asked, let_go = held_back(route)
    tokens, old = await signed_in(make_tokens, store, **CODE)
    caller = asyncio.create_task(tokens.renew_credential(old))
    await asked.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    let_go.set()
    await tokens.aclose()
    assert store.oauth_tokens.token.refresh_token == "r2"


async def test_token_endpoint_responses_classified(make_tokens: Make, route: respx.Route) -> None:
    for reply, expected in (
        (httpx.Response(500), errors.ServiceUnavailable),
        (httpx.Response(429, headers={"Retry-After": "9"}), errors.ServiceUnavailable),
        (httpx.Response(200, text="<html>"), errors.ServiceUnavailable),
        (httpx.Response(200, json={"token_type": "Bearer"}), errors.SignInFailed),
        (httpx.Response(401, json={"error": "invalid_client"}), errors.AuthenticationRequired),
        (httpx.Response(404), errors.AuthenticationRequired),
        (httpx.ConnectError("x"), errors.ServiceUnavailable),
    ):
        route.side_effect = [reply]
        with pytest.raises(errors.Failure) as caught:
            await make_tokens().credential()
        assert type(caught.value) is expected, reply


async def test_rejected_newer_token_is_renewed_separately(make_tokens: Make, route: respx.Route, store: Any) -> None:
    route.side_effect = [answer(3)]
    tokens, old = await signed_in(make_tokens, store, **CODE)
    store.oauth_tokens.token = stored(2, access_token="t2")
    found = await asyncio.gather(tokens.renew_credential(old), tokens.renew_credential(Credential("Bearer t2", 2)))
    assert [each.header for each in found] == ["Bearer t2", "Bearer t3"]


@pytest.mark.timeout(20)  # who waits for a renewal that is done keeps the event loop for ever
async def test_token_that_is_rejected_at_once_is_renewed_again(make_tokens: Make, route: respx.Route, store: Any) -> None:
    """It may be used, and rejected, before its renewal has ended: in the very moment, before anybody hears of the end."""
    route.side_effect = [answer(2), answer(3)]
    tokens, old = await signed_in(make_tokens, store, **CODE)
    run, late = store.transact, list[asyncio.Task[Credential]]()

    async def run_and_reject(work: Callable[[Any], Any]) -> Any:
        found = await run(work)
        if not late and store.oauth_tokens.token.generation == 2 and store.oauth_tokens.lease is None:
            late.append(asyncio.create_task(tokens.renew_credential(Credential("Bearer t2", 2))))
        return found

    store.transact = run_and_reject
    assert (await tokens.renew_credential(old)).header == "Bearer t2"
    assert (await late[0]).header == "Bearer t3"


ODD = ["two\r\nlines", "\n", "n\u00f6", "\u20ac", "nul\0", "tab\there", "del\x7f", " t1", "t1 ", ""]


@pytest.mark.parametrize("bad", [*ODD, "x" * 8_193, 7, None, ["t1"]], ids=lambda each: repr(each)[:20])
async def test_token_no_header_can_hold_is_refused(
    make_tokens: Make, route: respx.Route, store: Any, clock: Any, bad: Any
) -> None:
    """It is told by its field, asked for seldom, and by itself; what is stored stays as it was."""
    for grant in ({}, CODE):
        store.oauth_tokens.token = before = stored(expires_at=clock.now())
        route.calls.clear()
        route.side_effect = lambda request: httpx.Response(200, json={"access_token": bad, "refresh_token": "r2"})
        tokens = make_tokens(**grant)
        for _ in range(20):
            with pytest.raises(errors.AuthenticationRequired, match="`access_token`"):
                await tokens.credential()
        assert route.call_count <= 2
        assert store.oauth_tokens.token == before
        clock.advance(61)
        good = "x" * 8_192 if grant else "~! b/+="
        route.side_effect = [httpx.Response(200, json={"access_token": good})]
        assert (await tokens.credential()).header == f"Bearer {good}"


@pytest.mark.parametrize("generation", [1, 7])
@pytest.mark.parametrize("bad", ["two\r\nlines", "", "x" * 8_193])
async def test_stored_token_no_header_can_hold_is_replaced(
    make_tokens: Make, route: respx.Route, store: Any, bad: str, generation: int
) -> None:
    """One of an earlier program, or of another one that has just stored it, is never sent."""
    tokens, old = await signed_in(make_tokens, store, **CODE)
    store.oauth_tokens.token = stored(generation, access_token=bad)
    route.side_effect = [answer(9)]
    assert (await tokens.renew_credential(old)).header == "Bearer t9"
    assert (await make_tokens(**CODE).credential()).header == "Bearer t9"
    assert store.oauth_tokens.token.generation == generation + 1
    store.oauth_tokens.token = stored(access_token=bad, refresh_token=None)
    with pytest.raises(errors.AuthenticationRequired, match="lab-agent login"):
        await make_tokens(**CODE).credential()


async def test_unexpected_error_of_sign_in_is_told(make_tokens: Make, clock: Any) -> None:
    """Whoever needs the token is not to blame: it waits, and the sign-in is tried again, seldom."""
    for error in (TypeError("s3cret"), errors.ForeignOrigin("elsewhere"), MemoryError()):
        tokens = make_tokens()
        tokens._token_client.log_in = AsyncMock(side_effect=error)  # type: ignore[method-assign]
        for _ in range(3):
            with pytest.raises(errors.AuthenticationRequired) as caught:
                await tokens.credential()
            assert (type(error).__name__ in str(caught.value)) is not isinstance(error, errors.LabAgentError)
            assert "s3cret" not in str(caught.value)
    clock.advance(61)
    tokens._token_client.log_in = AsyncMock(return_value=stored())  # type: ignore[method-assign]
    assert (await tokens.credential()).header == "Bearer t1"
