"""`/readyz` and `/metrics` of lab-api: unready without its database while it serves what it has, and numbers in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.daemon import NO_KEEP_ALIVE
from tests.harness.programs import NotifySocket, free_port, running_api, write_settings_file

TOKEN = {"Authorization": "Bearer process-token"}
BASKET = {"contract": "C-100", "analyticsrequests": [{"id": "none", "guid": "secret-guid"}]}


def numbers(text: str) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels."""
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


async def test_requests_are_counted_by_endpoint_and_outcome(api: httpx.AsyncClient) -> None:
    first = await api.get("nomenclature?contract=C-100")
    await api.get("nomenclature?contract=C-100", headers={"If-None-Match": first.headers["etag"]})
    await api.get("eta?contract=C-100", headers={"Authorization": "Bearer wrong"})
    await api.get("eta?contract=secret")
    await api.post("preanalytics", json=BASKET)
    await api.delete("eta")
    await api.get("secret")
    answer = await api.get("http://lab/metrics", headers={"Authorization": ""})
    found = numbers(answer.text)
    counted = {key[1:]: value for key, value in found.items() if key[0] == "lab_api_requests_total"}
    assert counted == {
        ("nomenclature", "ok"): 1,
        ("nomenclature", "unchanged"): 1,
        ("eta", "no_access"): 1,
        ("eta", "not_found"): 1,
        ("eta", "invalid"): 1,
        ("preanalytics", "contradicted"): 1,
        ("other", "not_found"): 1,
    }
    assert found["lab_api_request_seconds_count", "nomenclature"] == 2
    assert "secret" not in answer.text


async def test_refusals_and_catalogue_are_told(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    await api.get("eta?contract=C-100", headers={"Authorization": "Bearer wrong"})
    await api.get("eta?contract=C-100", headers={"Authorization": ""})
    found = numbers((await api.get("http://lab/metrics")).text)
    refused = {key[1]: value for key, value in found.items() if key[0] == "lab_api_refusals_total" and value}
    assert refused == {"wrong_credentials": 1, "no_credentials": 1}
    assert found["lab_api_refusals_total", "too_many_requests"] == 0
    assert found["lab_api_catalogue_info", current_catalogue.responses.catalogue.version] == 1
    assert found[("lab_api_catalogue_served_since_timestamp_seconds",)] == current_catalogue.since.timestamp()
    assert found[("lab_api_ready",)] == 1


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_numbers_are_not_for_who_comes_through_a_proxy(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, header: str
) -> None:
    """Also where the prefix is empty, and the proxy passes on every path."""
    app = create_app(settings.model_copy(update={"prefix": ""}), current_catalogue)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab/") as client:
        assert (await client.get("metrics")).status_code == 200
        assert (await client.get("metrics", headers={header: "203.0.113.7"})).status_code == 404


@contextmanager
def moved_away(folder: Path) -> Iterator[None]:
    """The database is not where it was."""
    files = sorted(folder.glob("agent.db*"))
    away = folder / "away"
    away.mkdir()
    for each in files:
        each.rename(away / each.name)
    try:
        yield
    finally:
        for each in files:
            each.unlink(missing_ok=True)
            (away / each.name).rename(each)


async def test_api_without_its_database_is_unready_and_serves(folder: Path, tmp_path: Path) -> None:
    port, systemd = free_port(), NotifySocket(tmp_path / "notify")
    config = write_settings_file(folder, port)
    with closing(systemd.sock), running_api(config, systemd.environ):
        await asyncio.to_thread(systemd.wait_for, "READY=1")
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/", headers=TOKEN, trust_env=False, timeout=DEADLINE, limits=NO_KEEP_ALIVE
        ) as client:

            async def is_ready(status: int) -> bool:
                return (await client.get("readyz")).status_code == status

            assert await is_ready(200)
            with moved_away(tmp_path):
                await wait_until(lambda: is_ready(503), "it says that it is not ready")
                said = (await client.get("readyz")).json()
                served = await client.get("nomenclature?contract=C-100")
                told = numbers((await client.get("metrics")).text)
            await wait_until(lambda: is_ready(200), "it is ready again")
    assert (said["status"], said["service"], said["reason"]) == ("not ready", "lab-api", "store.deleted")
    assert said["mend"]
    assert served.status_code == 200
    assert told[("lab_api_ready",)] == 0
