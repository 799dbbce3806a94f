"""The database is upgraded while programs of the former version work on it, and they go on; where they could not, it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from lab_agent.settings.root import load_settings
from lab_agent.shared.errors import SchemaInUseError
from lab_agent.store.schema import check_schema, upgrade
from tests.harness.clock import wait_until
from tests.harness.installation import ProcessHarness
from tests.harness.schemas import ADDITIVE, REBUILT, next_schemas


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, harness: ProcessHarness) -> str:
    if request.param == "sqlite":
        named = load_settings(harness.workspace.agent_settings).store.url
        return f"sqlite:///{harness.workspace.folder / named.removeprefix('sqlite:///')}"
    found: str = request.getfixturevalue("postgres_url")
    upgrade(found)
    return found


async def upgrade_as(url: str, folder: Path, schema: str, program: Callable[[str], object] = upgrade) -> None:
    """Run `lab-agent db upgrade` of the version that has that schema."""
    with next_schemas(folder, upto=schema):
        await asyncio.to_thread(program, url)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_agent_goes_on_while_the_database_is_upgraded(harness: ProcessHarness, url: str, tmp_path: Path) -> None:
    agent = await harness.start_agent(LAB_AGENT_STORE__URL=url, LAB_AGENT_MONITORING__INTERVAL="1")
    first = await harness.place_order("before the upgrade")
    await wait_until(lambda: bool(harness.log_lines("action=order_seen")), "the order is on its way")
    await upgrade_as(url, tmp_path / "additive", ADDITIVE)
    second = await harness.place_order("after the upgrade")
    for order in (first, second):
        await harness.wait_until_ended(order)
        await harness.check_everything_once(order)
    assert check_schema(url).database == ADDITIVE
    told = "alert=store.newer_schema"
    await wait_until(lambda: bool(harness.log_lines(told)), "the notice that the schema is newer", 60)
    assert await agent.stop() == 0

    agent = await harness.start_agent(LAB_AGENT_STORE__URL=url)
    third = await harness.place_order("started on the newer schema")
    await harness.wait_until_ended(third)
    await harness.check_everything_once(third)
    assert harness.log_lines("action=schema_newer")
    assert not harness.log_lines("store.other_schema")
    with pytest.raises(SchemaInUseError, match=rf"lab-agent on .* \(process {agent.process.pid}, "):
        await upgrade_as(url, tmp_path / "rebuilt", REBUILT)
    assert await agent.stop() == 0
    if url.startswith("sqlite"):  # lab-api works on it too
        with pytest.raises(SchemaInUseError, match="work on the database: lab-api on "):
            await upgrade_as(url, tmp_path / "beside the api", REBUILT)
    else:
        await upgrade_as(url, tmp_path / "alone", REBUILT)
    assert set(harness.lis.received_counts().values()) == {1}
