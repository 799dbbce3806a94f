"""Refused requests: counted by reason and client, written together, and told by the agent; nobody is slowed down by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.catalogue.records import ApiToken
from lab_agent.operations.api_callers import ApiCallersProbe
from lab_agent.operations.monitor import Monitor
from lab_agent.settings.api import ApiSettings
from lab_agent.shared.conditions.model import ConditionId, Severity
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import StoreUnreachableError
from lab_agent.store.api_refusals import RefusalReason
from lab_agent.store.crypto import hash_token
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.observation import Observation
from lab_api.refusals import RefusalCounter
from lab_api.response_cache import CurrentCatalogue
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from tests.harness.clock import VirtualClock
from tests.integration.lab_api.parts import ETA, KEY, NOON, TroubledStore, bearer, caller

GRANT = {"grant_type": "client_credentials"}
OLD_GRANT = {**GRANT, "client_id": "partner", "client_secret": "old"}
DAY = timedelta(days=1)


def stored_token(name: str, secret: str, **more: Any) -> ApiToken:
    return ApiToken(id=name, name=name, sha256=hash_token(secret), contracts=None, created_at=NOON, **more)


OLD = stored_token("partner", "old", expires_at=NOON - DAY)
STORED = (OLD, stored_token("gone", "revoked", revoked_at=NOON), stored_token("live", "live"))


@dataclass
class Refusals:
    """An application under its prefix where nobody is signed in, and what its counter writes."""

    client: httpx.AsyncClient
    counter: RefusalCounter
    store: TroubledStore
    clock: VirtualClock

    async def written(self) -> dict[tuple[str, str], int]:
        """The counts of the last hour, by reason and client, once all are written."""
        await self.counter.write()
        since = self.clock.now() - timedelta(hours=1)
        found = await self.store.run_read_only(lambda uow: uow.api_refusals.since(since))
        return {(each.reason.value, each.client): each.count for each in found}

    def probe(self) -> ApiCallersProbe:
        return ApiCallersProbe(self.store, self.clock, limit=10)

    def count(self, times: int, reason: RefusalReason, client: str = "") -> None:
        for _ in range(times):
            self.counter.count(reason, client)


@pytest.fixture
async def refusals(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, store: TroubledStore, clock: VirtualClock
) -> AsyncIterator[Refusals]:
    signed, counter = SignedTokens((KEY,), 60.0, clock.now), RefusalCounter(store, clock.now)
    clients = Clients(settings.tokens, settings.basic, lambda: STORED, signed, clock.now)
    tokens = TokenEndpoint(lambda: STORED, signed, clock.now)
    app = create_app(settings, current_catalogue, clients=clients, tokens=tokens, observation=Observation(refusals=counter))
    async with caller(app, "") as client:
        del client.headers["Content-Type"]
        yield Refusals(client, counter, store, clock)


async def test_refused_request_counted_by_reason(refusals: Refusals) -> None:
    known = {"headers": bearer("exchange-token") | {"Content-Type": "application/json"}}
    expected: dict[tuple[str, str], int] = {}
    for path, options, reason, client in (
        (ETA, {}, "no_credentials", ""),
        (ETA, {"headers": bearer("wrong")}, "wrong_credentials", ""),
        (ETA, {"auth": ("ward", "wrong")}, "wrong_credentials", ""),
        (ETA, {"headers": bearer("old")}, "token_expired", "partner"),
        (ETA, {"auth": ("partner", "old")}, "token_expired", "partner"),
        (ETA, {"headers": bearer("revoked")}, "token_revoked", "gone"),
        (ETA, {"headers": bearer("tied-token")}, "unknown_contract", "tied"),
        ("eta", known, "invalid_request", "exchange"),
        ("preanalytics", {"method": "POST", "content": b"{", **known}, "invalid_request", "exchange"),
        ("preanalytics", {"method": "POST", "content": b"x" * 30_000, **known}, "invalid_request", "exchange"),
        ("token", {"method": "POST", "data": GRANT}, "no_credentials", ""),
        ("token", {"method": "POST", "data": OLD_GRANT}, "token_expired", "partner"),
    ):
        response = await refusals.client.request(**{"method": "GET", "url": path, **options})
        assert response.status_code in {400, 401, 404, 413}
        expected[reason, client] = expected.get((reason, client), 0) + 1
        assert await refusals.written() == expected, (path, reason)


async def test_what_is_no_refusal_is_not_counted(refusals: Refusals) -> None:
    """Answers, our own probe, unknown paths, and a short-lived token over its time: its client then fetches the next one."""
    client = refusals.client
    assert (await client.get(ETA, headers=bearer("live"))).status_code == 200
    assert (await client.get("nomenclature", headers={"User-Agent": "lab-agent-probe"})).status_code == 401
    assert (await client.get("nothing")).status_code == 404
    token = (await client.post("token", data={**GRANT, "client_id": "live", "client_secret": "live"})).json()["access_token"]
    refusals.clock.advance(minutes=2)
    assert (await client.get(ETA, headers=bearer(token))).status_code == 401
    assert await refusals.written() == {}


async def test_unavailable_store_loses_no_count_and_keeps_them_bounded(refusals: Refusals) -> None:
    refusals.store.error = StoreUnreachableError()
    refusals.count(1, RefusalReason.WRONG_CREDENTIALS)
    with pytest.raises(StoreUnreachableError):
        await refusals.counter.write()
    refusals.count(1, RefusalReason.WRONG_CREDENTIALS)
    refusals.store.error = None
    assert await refusals.written() == {("wrong_credentials", ""): 2}
    for number in range(1500):
        refusals.count(1, RefusalReason.UNKNOWN_CONTRACT, f"client-{number}")
    assert len(await refusals.written()) == 1000 + 1


async def test_alert_opens_beyond_limit_and_closes_after_hour(refusals: Refusals) -> None:
    probe, store = refusals.probe(), refusals.store
    monitor, states = Monitor(store, refusals.clock, [probe]), []

    async def refuse(times: int, **later: float) -> None:
        refusals.count(times, RefusalReason.TOKEN_EXPIRED, "partner")
        await refusals.counter.write()
        await monitor.run()
        states.append(sorted(map(str, await store.run_read_only(lambda uow: uow.alerts.open_of(probe.conditions)))))
        refusals.clock.advance(**later)

    key = "api.callers_refused/token_expired/partner"
    await refuse(10, minutes=10)
    await refuse(1, minutes=59)
    await refuse(1, minutes=59)  # fewer within this hour, but it goes on
    await refuse(0, minutes=2)
    await refuse(0)
    assert states == [[], [key], [key], [key], []]


async def test_requests_without_credentials_are_a_notice_of_their_own(refusals: Refusals) -> None:
    """A port scanner needs no person; a caller that tried a token does."""
    for reason in (RefusalReason.NO_CREDENTIALS, RefusalReason.WRONG_CREDENTIALS):
        refusals.count(11, reason)
    await refusals.counter.write()
    found = {str(each.key): each.count for each in await refusals.probe().look()}
    assert found == {"api.callers_anonymous": 11, "api.callers_refused/wrong_credentials": 11}
    assert CONDITIONS[ConditionId.API_CALLERS_ANONYMOUS].severity is Severity.NOTICE


async def test_expired_token_named_with_its_end(refusals: Refusals) -> None:
    def add(uow: Any) -> None:
        uow.api_tokens.add(OLD)

    await refusals.store.transact(add)
    refusals.count(11, RefusalReason.TOKEN_EXPIRED, "partner")
    await refusals.counter.write()
    (finding,) = await refusals.probe().look()
    assert (finding.count, finding.since) == (11, refusals.clock.now())
    assert finding.detail == f"the token of partner has expired ({OLD.expires_at:%Y-%m-%d %H:%M} UTC)"
