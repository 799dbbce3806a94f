"""Refused requests: counted by reason and client, written together, and told by the agent; nobody is slowed down by them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.bootstrap import SystemClock
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import Severity
from lab_agent.conditions.table import CONDITIONS
from lab_agent.crypto import Cipher, hash_token
from lab_agent.domain.api_refusals import RefusalReason
from lab_agent.domain.catalogue_records import ApiToken
from lab_agent.errors import StoreUnreachableError
from lab_agent.monitoring.api_callers import ApiCallersProbe
from lab_agent.monitoring.monitor import Monitor
from lab_agent.settings.api import ApiSettings
from lab_agent.store.unit_of_work import SqlStore
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.observation import Observation
from lab_api.refusals import RefusalCounter
from lab_api.response_cache import CurrentCatalogue
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import DEADLINE, VirtualClock, wait_until
from tests.harness.programs import NotifySocket, free_port, running_api, write_settings_file

KEY = "mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="
NOW = VirtualClock().now()
OLD = ApiToken(
    id="t1",
    name="partner",
    sha256=hash_token("old"),
    contracts=None,
    created_at=NOW,
    expires_at=NOW - timedelta(days=1),
)
REVOKED = replace(OLD, id="t2", name="gone", sha256=hash_token("revoked"), revoked_at=NOW)
LIVE = replace(OLD, id="t3", name="live", sha256=hash_token("live"), expires_at=None)
ETA = "eta?contract=C-100"
EXCHANGE = {"Authorization": "Bearer exchange-token", "Content-Type": "application/json"}
GRANT = {"grant_type": "client_credentials"}


@pytest.fixture
def virtual() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def counter(store: MemoryStore, virtual: VirtualClock) -> RefusalCounter:
    return RefusalCounter(store, virtual.now)


@pytest.fixture
async def api(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, counter: RefusalCounter, virtual: VirtualClock
) -> AsyncIterator[httpx.AsyncClient]:
    """The application under its prefix; nobody is signed in."""

    def stored() -> tuple[ApiToken, ...]:
        return (OLD, REVOKED, LIVE)

    signed = SignedTokens((KEY,), 60.0, virtual.now)
    clients, tokens = (
        Clients(settings.tokens, settings.basic, stored, signed, virtual.now),
        TokenEndpoint(stored, signed, virtual.now),
    )
    app = create_app(settings, current_catalogue, clients=clients, tokens=tokens, observation=Observation(refusals=counter))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab/lab/") as client:
        yield client


async def counted(store: MemoryStore, virtual: VirtualClock) -> dict[tuple[str, str], int]:
    found = await store.run_read_only(lambda uow: uow.api_refusals.since(virtual.now() - timedelta(hours=1)))
    return {(each.reason.value, each.client): each.count for each in found}


@pytest.mark.parametrize(
    ("path", "options", "reason", "client"),
    [
        (ETA, {}, "no_credentials", ""),
        (ETA, {"headers": {"Authorization": "Bearer wrong"}}, "wrong_credentials", ""),
        (ETA, {"auth": ("ward", "wrong")}, "wrong_credentials", ""),
        (ETA, {"headers": {"Authorization": "Bearer old"}}, "token_expired", "partner"),
        (ETA, {"auth": ("partner", "old")}, "token_expired", "partner"),
        (ETA, {"headers": {"Authorization": "Bearer revoked"}}, "token_revoked", "gone"),
        (ETA, {"headers": {"Authorization": "Bearer tied-token"}}, "unknown_contract", "tied"),
        ("eta", {"headers": EXCHANGE}, "invalid_request", "exchange"),
        ("preanalytics", {"method": "POST", "content": b"{", "headers": EXCHANGE}, "invalid_request", "exchange"),
        ("preanalytics", {"method": "POST", "content": b"x" * 30_000, "headers": EXCHANGE}, "invalid_request", "exchange"),
        ("token", {"method": "POST", "data": GRANT}, "no_credentials", ""),
        (
            "token",
            {"method": "POST", "data": {**GRANT, "client_id": "partner", "client_secret": "old"}},
            "token_expired",
            "partner",
        ),
    ],
)
async def test_refused_request_counted_by_reason(
    api: httpx.AsyncClient,
    counter: RefusalCounter,
    store: MemoryStore,
    virtual: VirtualClock,
    path: str,
    options: dict[str, Any],
    reason: str,
    client: str,
) -> None:
    response = await api.request(**{"method": "GET", "url": path, **options})
    assert response.status_code in {400, 401, 404, 413}
    await counter.write()
    assert await counted(store, virtual) == {(reason, client): 1}


async def test_answered_requests_and_our_probe_not_counted(
    api: httpx.AsyncClient, counter: RefusalCounter, store: MemoryStore, virtual: VirtualClock
) -> None:
    assert (await api.get(ETA, headers={"Authorization": "Bearer live"})).status_code == 200
    assert (await api.get("nomenclature", headers={"User-Agent": "lab-agent-probe"})).status_code == 401
    assert (await api.get("nothing")).status_code == 404
    await counter.write()
    assert not await counted(store, virtual)


async def test_shortlived_token_over_time_not_counted(
    api: httpx.AsyncClient, counter: RefusalCounter, store: MemoryStore, virtual: VirtualClock
) -> None:
    """A client fetches the next one when it is told so: that is how these tokens are used."""
    token = (await api.post("token", data={**GRANT, "client_id": "live", "client_secret": "live"})).json()["access_token"]
    virtual.advance(minutes=2)
    assert (await api.get(ETA, headers={"Authorization": f"Bearer {token}"})).status_code == 401
    await counter.write()
    assert not await counted(store, virtual)


async def test_unavailable_store_loses_no_count(virtual: VirtualClock) -> None:
    class Flaky(MemoryStore):
        unavailable = True

        async def run(self, work: Any) -> Any:
            if self.unavailable:
                raise StoreUnreachableError
            return await super().run(work)

    store = Flaky()
    counter = RefusalCounter(store, virtual.now)
    counter.count(RefusalReason.WRONG_CREDENTIALS)
    with pytest.raises(StoreUnreachableError):
        await counter.write()
    counter.count(RefusalReason.WRONG_CREDENTIALS)
    store.unavailable = False
    await counter.write()
    assert await counted(store, virtual) == {("wrong_credentials", ""): 2}


async def test_endless_outage_keeps_counts_bounded(store: MemoryStore, counter: RefusalCounter, virtual: VirtualClock) -> None:
    for number in range(1500):
        counter.count(RefusalReason.UNKNOWN_CONTRACT, f"client-{number}")
    await counter.write()
    assert len(await counted(store, virtual)) == 1000


async def test_alert_opens_beyond_limit_and_closes_after_hour(
    store: MemoryStore, counter: RefusalCounter, virtual: VirtualClock
) -> None:
    probe = ApiCallersProbe(store, virtual, limit=10)
    monitor, states = Monitor(store, virtual, [probe]), []

    async def refuse(times: int, **later: float) -> None:
        for _ in range(times):
            counter.count(RefusalReason.TOKEN_EXPIRED, "partner")
        await counter.write()
        await monitor.run()
        states.append(sorted(map(str, await store.run_read_only(lambda uow: uow.alerts.open_of(probe.conditions)))))
        virtual.advance(**later)

    key = "api.callers_refused/token_expired/partner"
    await refuse(10, minutes=10)
    await refuse(1, minutes=59)
    await refuse(1, minutes=59)  # fewer within this hour, but it goes on
    await refuse(0, minutes=2)
    await refuse(0)
    assert states == [[], [key], [key], [key], []]


async def test_requests_without_credentials_are_a_notice_of_their_own(
    store: MemoryStore, counter: RefusalCounter, virtual: VirtualClock
) -> None:
    """A port scanner needs no person; a caller that tried a token does."""
    for reason in (RefusalReason.NO_CREDENTIALS, RefusalReason.WRONG_CREDENTIALS):
        for _ in range(11):
            counter.count(reason)
    await counter.write()
    found = {str(each.key): each.count for each in await ApiCallersProbe(store, virtual, limit=10).look()}
    assert found == {"api.callers_anonymous": 11, "api.callers_refused/wrong_credentials": 11}
    assert CONDITIONS[ConditionId.API_CALLERS_ANONYMOUS].severity is Severity.NOTICE


async def test_expired_token_named_with_its_end(store: MemoryStore, counter: RefusalCounter, virtual: VirtualClock) -> None:
    def add(uow: Any) -> None:
        uow.api_tokens.add(OLD)
        uow.commit()

    await store.run(add)
    for _ in range(11):
        counter.count(RefusalReason.TOKEN_EXPIRED, "partner")
    await counter.write()
    (finding,) = await ApiCallersProbe(store, virtual, limit=10).look()
    assert (finding.count, finding.since) == (11, virtual.now())
    assert finding.detail == f"the token of partner has expired ({OLD.expires_at:%Y-%m-%d %H:%M} UTC)"


async def test_wrong_token_at_running_api_told(folder: Path, tmp_path: Path) -> None:
    port, systemd = free_port(), NotifySocket(tmp_path / "notify")
    config = write_settings_file(folder, port)
    store = SqlStore(f"sqlite:///{tmp_path}/agent.db", Cipher(KEY))
    probe = ApiCallersProbe(store, SystemClock(), limit=10)
    with closing(systemd.sock), running_api(config, systemd.environ) as process:
        await asyncio.to_thread(systemd.wait_for, "READY=1")
        async with httpx.AsyncClient(
            headers={"Authorization": "Bearer wrong-token"}, trust_env=False, timeout=DEADLINE
        ) as client:
            answers = [await client.get(f"http://127.0.0.1:{port}/{ETA}") for _ in range(11)]

        async def is_told() -> bool:
            return bool(await probe.look())

        await wait_until(is_told, "the refusals are in the store")
        process.terminate()
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        assert "wrong-token" not in process.stderr.read()
    (finding,) = await probe.look()
    await store.close()
    assert {each.status_code for each in answers} == {401}
    assert (finding.subject, finding.count) == ("wrong_credentials", 11)
