"""Several processes, one sign-in, and a service that rotates refresh tokens and ends the sign-in when an old one is shown."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.shared.errors import Failure
from lab_agent.shared.http_client import HttpClient, HttpOptions
from tests.harness.clock import VirtualClock
from tests.harness.proof import FIGURES, SHARE
from tests.integration.exchange.conftest import FakeTokenStore, oauth_settings


@dataclass
class TokenService:
    """Gives one chain of tokens. `weather` says what happens to each request; later ones are fair."""

    weather: list[str]
    good: str | None = None
    refresh: str | None = None
    given: int = 0
    asking: int = 0
    most_asking: int = 0
    reused: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return self._answer({name: found[0] for name, found in parse_qs(request.content.decode()).items()})
        finally:
            self.asking -= 1

    def _answer(self, form: dict[str, str]) -> httpx.Response:
        weather = self.weather.pop(0) if self.weather else "fair"
        if weather == "away":
            raise httpx.ConnectError("away")
        if weather == "busy":
            return httpx.Response(503, headers={"Retry-After": "1"})
        if form["grant_type"] == "refresh_token" and form["refresh_token"] != self.refresh:
            self.reused.append(form["refresh_token"])
            self.good = self.refresh = None
            return httpx.Response(400, json={"error": "invalid_grant"})
        self.given += 1
        self.good, self.refresh = f"t{self.given}", f"r{self.given}"
        if weather == "lost":
            self.lost.add(form.get("refresh_token", ""))
            raise httpx.ReadTimeout("lost")
        return httpx.Response(200, json={"access_token": self.good, "refresh_token": self.refresh, "expires_in": 600})


PASSWORD = oauth_settings()


async def _work(service: TokenService, store: FakeTokenStore, steps: list[tuple[int, str]]) -> None:
    clock = VirtualClock()
    async with HttpClient(HttpOptions(timeout=5), transport=httpx.MockTransport(service.handle)) as http:
        processes = [Authenticator(PASSWORD, http, store, clock, f"worker-{number}") for number in range(3)]
        for number, step in steps:
            if step == "time":
                clock.time += timedelta(seconds=200)
            elif step == "restart":
                await processes[number].aclose()
                processes[number] = Authenticator(PASSWORD, http, store, clock, f"worker-{number}-{clock.time}")
            else:
                await asyncio.gather(*(_call(each, service) for each in processes for _ in range(2)))
        service.weather.clear()
        clock.time += timedelta(seconds=61)
        for process in processes:
            assert await _call(process, service)


async def _call(tokens: Authenticator, service: TokenService) -> bool:
    """One call to the API, as the client makes it: true if it was let in."""
    try:
        credential = await tokens.credential()
        if credential.header == f"Bearer {service.good}":
            return True
        credential = await tokens.renew_credential(credential)
    except Failure:
        return False
    return credential.header == f"Bearer {service.good}"


weathers = st.lists(st.sampled_from(["fair", "fair", "away", "busy", "lost"]), max_size=12)
stories = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["call", "call", "time", "restart"])), max_size=12)


@pytest.mark.parametrize(
    "examples", [30, pytest.param(max(100, int(5000 * SHARE)), marks=pytest.mark.proof)], ids=["few", "many"]
)
def test_concurrent_refreshes_stay_serial_and_recover(examples: int) -> None:
    """One asks at a time, only a lost reply lets a refresh token be sent twice, and it always recovers."""

    @settings(max_examples=examples, deadline=None)
    @given(weathers, stories)
    def tell(weather: list[str], steps: list[tuple[int, Any]]) -> None:
        service = TokenService(list(weather))
        with patch("lab_agent.exchange.authenticator._LEASE_POLL_SECONDS", 0.0):
            asyncio.run(_work(service, FakeTokenStore(), steps))
        assert service.most_asking <= 1
        assert set(service.reused) <= service.lost

    tell()
    FIGURES.add(concurrent_sign_ins=examples)
