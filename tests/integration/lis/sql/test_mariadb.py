"""The tables that `ddl` prints, on a real MariaDB: large documents, every letter, and a server whose packets are too small."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Engine, insert, select
from structlog.testing import capture_logs

from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.lab_order import OrderPatient
from lab_agent.lis.serialization import load_order
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.sql.staging_tables import StagingTables
from lab_agent.lis.testing import MemoryInbox, make_order
from tests.harness.databases import create_staging_tables

TWENTY_MEGABYTES = 20_000_000


@pytest.fixture
def staging(mariadb_url: str) -> Iterator[tuple[Engine, StagingTables]]:
    made = create_staging_tables(mariadb_url)
    yield made
    made[0].dispose()


@asynccontextmanager
async def started(url: str, **more: object) -> AsyncIterator[tuple[SqlAdapter, MemoryInbox]]:
    adapter, inbox = SqlAdapter(SqlSettings.model_validate({"url": url, **more}), "sql"), MemoryInbox()
    await adapter.start(inbox)
    yield adapter, inbox
    await adapter.stop()


async def test_documents_of_20_mb_arrive_whole(mariadb_url: str, staging: tuple[Engine, StagingTables]) -> None:
    engine, tables = staging
    content, moment = b"%PDF-1.7\n" + os.urandom(TWENTY_MEGABYTES), "2024-05-17T08:30:00+03:00"
    head = {"report_id": "B1", "order_key": "R1", "status": "final", "effective_at": moment, "issued_at": moment}
    value = "Ж" * (TWENTY_MEGABYTES // 2)
    seen = {"code": {"system": "urn:ours", "code": "1"}, "value_string": value}
    tree = {"report_id": "B2", "order": "R1", "status": "final", "effective": moment, "issued": moment, "observations": [seen]}

    def write() -> None:
        with engine.begin() as connection:
            (row,) = connection.execute(insert(tables.results).values(ready=1, **head)).inserted_primary_key or (0,)
            connection.execute(insert(tables.documents).values(result_id=row, position=0, content=content))
            connection.execute(insert(tables.results).values(ready=1, document=json.dumps(tree, ensure_ascii=False)))

    await asyncio.to_thread(write)
    async with started(mariadb_url) as (adapter, inbox):
        assert await adapter.collect() == 2
    first, second = inbox.contents
    assert isinstance(first, LabReport)
    assert first.documents[0].content == content
    assert isinstance(second, LabReport)
    assert second.observations[0].value_string == value


async def test_order_keeps_letters_of_every_script(mariadb_url: str, staging: tuple[Engine, StagingTables]) -> None:
    engine, tables = staging
    order = replace(make_order(1), patient=OrderPatient(family="Тестова-Ünal", given=("鈴木 😀",)))
    async with started(mariadb_url) as (adapter, _):
        await adapter.submit(order)
    with engine.connect() as connection:
        (document,) = connection.execute(select(tables.orders.c.document)).scalars()
        (family,) = connection.execute(select(tables.patients.c.family)).scalars()
    assert (load_order(document.encode()), family) == (order, "Тестова-Ünal")


@pytest.mark.usefixtures("staging")
async def test_packet_smaller_than_documents_is_told(mariadb_url: str) -> None:
    for limit, told in ((50_000_000, []), (70_000_000, ["sql_packet_small"])):
        with capture_logs() as logs:
            async with started(mariadb_url, max_document_bytes=limit):
                pass
        assert [line["action"] for line in logs] == told
