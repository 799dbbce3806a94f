"""The API in-process: settings, a store that fails as it is told, and somebody who calls."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import uuid4

import httpx

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.settings.api import ApiSettings
from lab_agent.shared.label_pools import LabelPool
from lab_agent.store.crypto import hash_token
from lab_agent.store.unit_of_work import Store
from tests.harness.paths import CATALOGUE

KEY = "mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
POOL = LabelPool("main", "77######%", 1, 999_999, "luhn", contracts=frozenset({"C-100"}))
ETA = "eta?contract=C-100"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


@cache
def sample() -> Catalogue:
    """The sample catalogue, which nothing changes."""
    return load_catalogue(CATALOGUE)


def plain_items(size: int, catalogue: Catalogue | None = None) -> list[str]:
    """Items of C-100 for which no specimen has to be chosen."""
    items = (catalogue or sample()).contract("C-100").items.values()
    return [item.id for item in items if len(item.options) < 2][:size]


def basket(*items: str, contract: str = "C-100", guids: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    lines: list[dict[str, Any]] = [{"id": item, **more} for item in items]
    for line, guid in zip(lines, guids, strict=False):
        line["guid"] = guid
    return {"contract": contract, "analyticsrequests": lines}


def new_guids(count: int) -> list[str]:
    return [str(uuid4()) for _ in range(count)]


def make_settings(**changes: Any) -> ApiSettings:
    """Tokens of the exchange service, of a client that is tied to C-200, and of one to nothing; a ward by name and password."""
    contracts = {"exchange": None, "tied": ["C-200"], "nobody": ["C-999"]}
    tokens = [{"name": name, "sha256": hash_token(f"{name}-token"), "contracts": allowed} for name, allowed in contracts.items()]
    wide = {"prefix": "/lab", "max_body": 20_000, "max_basket": 50, "rate": 10_000, "burst": 10_000, "docs": True}
    return ApiSettings.model_validate(wide | {"catalogue": CATALOGUE, "tokens": tokens} | changes)


def caller(app: Any, token: str = "exchange-token", *, base: str = "http://lab/lab/", raises: bool = False) -> httpx.AsyncClient:
    """Somebody with this token who calls an application; without one for an empty word."""
    headers = (bearer(token) if token else {}) | {"Content-Type": "application/json"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=raises), base_url=base, headers=headers)


class TroubledStore(Store):
    """A store that fails as it is told, and counts its units of work."""

    error: Exception | None = None
    failures = units = 0

    async def transact(self, work: Any) -> Any:
        self._fail()
        self.units += 1
        return await super().transact(work)

    async def run_read_only(self, work: Any) -> Any:
        self._fail()
        return await super().run_read_only(work)

    def _fail(self) -> None:
        if self.error:
            self.failures += 1
            raise self.error
