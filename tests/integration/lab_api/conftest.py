from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher

from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.settings.api import ApiBasicSettings, ApiSettings, ApiTokenSettings
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.paths import CATALOGUE


class CallableClock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def api_token(name: str, *contracts: str) -> ApiTokenSettings:
    return ApiTokenSettings(name=name, sha256=hashlib.sha256(f"{name}-token".encode()).hexdigest(), contracts=contracts or None)


@pytest.fixture
def clock() -> CallableClock:
    return CallableClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))


@pytest.fixture(scope="session")
def password_hash() -> str:
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("lamp:shade")


@pytest.fixture
def settings(folder: Path, password_hash: str) -> ApiSettings:
    return ApiSettings(
        prefix="/lab",
        catalogue=folder,
        tokens=(api_token("exchange"), api_token("tied", "C-200"), api_token("nobody", "C-999")),
        basic=(ApiBasicSettings(name="ward", password_hash=password_hash, contracts=("C-100",)),),
        max_body=20_000,
        max_basket=50,
        rate=10_000,
        burst=10_000,
        docs=True,
    )


@pytest.fixture
def current_catalogue(folder: Path, clock: CallableClock) -> CurrentCatalogue:
    return CurrentCatalogue(load_catalogue(folder), clock)


@pytest.fixture
async def api(settings: ApiSettings, current_catalogue: CurrentCatalogue) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who calls the application under its prefix, with the token of the exchange service."""
    transport = httpx.ASGITransport(create_app(settings, current_catalogue), raise_app_exceptions=False)
    headers = {"Authorization": "Bearer exchange-token", "Content-Type": "application/json"}
    async with httpx.AsyncClient(transport=transport, base_url="http://lab/lab/", headers=headers) as client:
        yield client
