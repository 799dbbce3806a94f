from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import respx

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient
from lab_agent.settings.exchange import ExchangeSettings, OAuthSettings
from lab_agent.shared.errors import LeaseLostError
from lab_agent.shared.http_client import HttpClient, HttpOptions
from lab_agent.shared.metrics import CallObserver, ignore
from lab_agent.shared.values import Identifier
from lab_agent.store.credential_records import StoredToken
from tests.harness.clock import VirtualClock

BASE = "https://service.example/api/"
OURS = Identifier(system="https://lab.example/ids?a=b", value="A|1,2 +&é")
AUTH = "https://auth.example"


class FakeTokenRepository:
    """The store's `tokens` book, in memory."""

    def __init__(self) -> None:
        self.token: StoredToken | None = None
        self.lease: tuple[str, datetime] | None = None

    def current(self) -> StoredToken | None:
        return self.token

    def add(self, token: StoredToken) -> None:
        if self.token is not None and self.token.generation >= token.generation:
            raise LeaseLostError
        self.token = token

    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        if self.lease is not None and self.lease[0] != owner and self.lease[1] > now:
            return False
        self.lease = (owner, now + lease)
        return True

    def release_refresh_lease(self, owner: str) -> None:
        if self.lease is not None and self.lease[0] == owner:
            self.lease = None


class FakeTokenStore:
    """A store that holds nothing but tokens; `broken` makes the next so many units of work fail."""

    def __init__(self) -> None:
        self.oauth_tokens = FakeTokenRepository()
        self.failures: list[Exception] = []

    async def transact(self, work: Callable[[Any], Any]) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return work(self)

    def commit(self) -> None:
        pass


def oauth_settings(**changes: Any) -> OAuthSettings:
    given = {"grant": "password", "auth_url": AUTH, "client_id": "lab", "client_secret": "s3cret"}
    given |= {"username": "u", "password": "p"}
    return OAuthSettings.model_validate({**given, **changes})


def exchange_settings(**changes: Any) -> ExchangeSettings:
    given = {"base_url": BASE, "lab_codes_url": "https://codes.example", "laboratory": "lab-guid", "oauth": oauth_settings()}
    return ExchangeSettings.model_validate({**given, **changes})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(datetime(2026, 3, 1, 12, 0, tzinfo=UTC))


@pytest.fixture
def store() -> FakeTokenStore:
    return FakeTokenStore()


class Service(respx.MockRouter):
    """An exchange service that answers as its routes say, and clients of it."""

    client: Callable[..., ExchangeClient]


@pytest.fixture
def router() -> Service:
    return Service(assert_all_called=False)


@pytest.fixture
async def http(router: respx.MockRouter) -> AsyncIterator[HttpClient]:
    async with HttpClient(HttpOptions(timeout=5), transport=httpx.MockTransport(router.async_handler)) as client:
        yield client


@pytest.fixture
def token_route(router: respx.MockRouter) -> respx.Route:
    return router.post(f"{AUTH}/connect/token").respond(json={"access_token": "t1", "refresh_token": "r1", "expires_in": 3600})


@pytest.fixture
def make_tokens(http: HttpClient, store: FakeTokenStore, clock: VirtualClock) -> Callable[..., Authenticator]:
    def make(owner: str = "me", **changes: Any) -> Authenticator:
        return Authenticator(oauth_settings(**changes), http, store, clock, owner)  # type: ignore[arg-type]

    return make


@pytest.fixture
def service(
    router: Service,
    http: HttpClient,
    make_tokens: Callable[..., Authenticator],
    token_route: respx.Route,
    monkeypatch: pytest.MonkeyPatch,
) -> Service:
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.001)

    def make(heard: CallObserver = ignore, **changes: Any) -> ExchangeClient:
        return ExchangeClient(exchange_settings(**changes), http, make_tokens(), on_call=heard)

    router.client = make  # type: ignore[method-assign]
    return router


def task(number: int, version: int = 1, **more: Any) -> dict[str, Any]:
    ours = {"status": "requested", "code": {"coding": [{"code": "OrderProcessingTask"}]}}
    return {"resourceType": "Task", "id": f"t{number}", "meta": {"versionId": str(version)}, **ours, **more}


def bundle(*resources: dict[str, Any], onward: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"resourceType": "Bundle", "type": "searchset", "entry": [{"resource": each} for each in resources]}
    return found if onward is None else {**found, "link": [{"relation": "self", "url": "x"}, {"relation": "next", "url": onward}]}


def tokens() -> list[httpx.Response]:
    """Answers of the token endpoint, in turn."""
    return [httpx.Response(200, json={"access_token": f"t{each}", "refresh_token": f"r{each}"}) for each in range(1, 9)]
