"""The tables that `ddl` prints, on a real MariaDB: large documents, every letter, and a server whose packets are too small."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, create_engine, insert, select, text
from structlog.testing import capture_logs

from lab_agent.domain.lab_messages import LabReport
from lab_agent.domain.lab_order import OrderPatient
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.sql.staging_tables import StagingTables, create_statements, make_tables
from lab_agent.lis.testing import MemoryInbox, make_order
from lab_agent.serialization import load_order

TWENTY_MEGABYTES = 20_000_000


@pytest.fixture
def engine(mariadb_url: str) -> Iterator[Engine]:
    made = create_engine(mariadb_url)
    with made.begin() as connection:
        for statement in filter(str.strip, create_statements("mysql", "lab_").split(";")):
            connection.execute(text(statement))
    yield made
    made.dispose()


@pytest.fixture
def tables() -> StagingTables:
    return make_tables("lab_", None)


@pytest.fixture
async def adapter(mariadb_url: str, engine: Engine, inbox: MemoryInbox) -> AsyncIterator[SqlAdapter]:
    made = SqlAdapter(SqlSettings.model_validate({"url": mariadb_url, "time_zone": "Europe/Moscow"}), "sql")
    await made.start(inbox)
    yield made
    await made.stop()


@pytest.fixture
def inbox() -> MemoryInbox:
    return MemoryInbox()


async def test_document_of_20_mb_arrives_whole(
    adapter: SqlAdapter, engine: Engine, tables: StagingTables, inbox: MemoryInbox
) -> None:
    content = b"%PDF-1.7\n" + os.urandom(TWENTY_MEGABYTES)
    moment = "2024-05-17T08:30:00"
    head = {"report_id": "B1", "order_key": "R1", "status": "final", "effective_at": moment, "issued_at": moment}

    def write() -> None:
        with engine.begin() as connection:
            (row,) = connection.execute(insert(tables.results).values(ready=1, **head)).inserted_primary_key or (0,)
            connection.execute(insert(tables.documents).values(result_id=row, position=0, content=content))

    await asyncio.to_thread(write)
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert report.documents[0].content == content


async def test_message_of_20_mb_as_json_arrives_whole(
    adapter: SqlAdapter, engine: Engine, tables: StagingTables, inbox: MemoryInbox
) -> None:
    value = "Ж" * (TWENTY_MEGABYTES // 2)
    report = {
        "report_id": "B1",
        "order": "R1",
        "status": "final",
        "effective": "2024-05-17T08:30:00+03:00",
        "issued": "2024-05-17T08:30:00+03:00",
        "observations": [{"code": {"system": "urn:ours", "code": "1"}, "value_string": value}],
    }

    def write() -> None:
        with engine.begin() as connection:
            connection.execute(insert(tables.results).values(ready=1, document=json.dumps(report, ensure_ascii=False)))

    await asyncio.to_thread(write)
    assert await adapter.collect() == 1
    (read,) = inbox.contents
    assert isinstance(read, LabReport)
    assert read.observations[0].value_string == value


async def test_order_keeps_letters_of_every_script(adapter: SqlAdapter, engine: Engine, tables: StagingTables) -> None:
    order = replace(make_order(1), patient=OrderPatient(family="Тестова-Ünal", given=("鈴木 😀",)))
    await adapter.submit(order)
    with engine.connect() as connection:
        (document,) = connection.execute(select(tables.orders.c.document)).scalars()
        (family,) = connection.execute(select(tables.patients.c.family)).scalars()
    assert (load_order(document.encode()), family) == (order, "Тестова-Ünal")


async def test_packet_smaller_than_documents_is_told(mariadb_url: str, engine: Engine, inbox: MemoryInbox) -> None:
    for limit, told in ((50_000_000, []), (70_000_000, ["sql_packet_small"])):
        settings = SqlSettings.model_validate({"url": mariadb_url, "max_document_bytes": limit})
        made = SqlAdapter(settings, "sql")
        with capture_logs() as logs:
            await made.start(inbox)
        await made.stop()
        assert [line["action"] for line in logs] == told


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_mysql_ddl_names_packet_size_engine_and_charset(dialect: str) -> None:
    said = create_statements(dialect, "lab_")
    assert "max_allowed_packet" in said.splitlines()[0]
    assert said.count("ENGINE=InnoDB") == said.count("CHARSET=utf8mb4") == said.count("CREATE TABLE")
    assert " TEXT" not in said
    assert " BLOB" not in said
