from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher

from lab_agent.settings.api import ApiSettings
from lab_agent.store.crypto import Cipher
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.clock import VirtualClock
from tests.harness.databases import create_database
from tests.harness.paths import CATALOGUE
from tests.harness.programs import NotifySocket
from tests.integration.lab_api.parts import KEY, NOON, TroubledStore, caller, make_settings, sample


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample catalogue, to be changed."""
    return Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))


@pytest.fixture(scope="session")
def password_hash() -> str:
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("lamp:shade")


@pytest.fixture
def settings(password_hash: str) -> ApiSettings:
    return make_settings(basic=[{"name": "ward", "password_hash": password_hash, "contracts": ["C-100"]}])


@pytest.fixture
def current_catalogue(clock: VirtualClock) -> CurrentCatalogue:
    return CurrentCatalogue(sample(), clock.now)


@pytest.fixture
async def api(settings: ApiSettings, current_catalogue: CurrentCatalogue) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who calls the application under its prefix, with the token of the exchange service."""
    async with caller(create_app(settings, current_catalogue)) as client:
        yield client


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[TroubledStore]:
    opened = TroubledStore(create_database(tmp_path / "lab.db"), Cipher(KEY))
    yield opened
    await opened.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    notices = NotifySocket(tmp_path / "notify")
    yield notices
    notices.sock.close()
