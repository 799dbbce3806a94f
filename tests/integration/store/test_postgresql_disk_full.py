"""PostgreSQL on a disk that is really full: nothing is acknowledged that is not kept, and all goes on once there is room."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store
from tests.harness.small_disk import fill, mounted_disk

_DISK_SIZE = 32_000_000
"""Of which a new database takes some eight."""
_MUCH = "x" * 200_000


@pytest.fixture
def small_database(postgres_server: str) -> Iterator[tuple[str, Path]]:
    """A database whose tables are on a small disk of their own, and that disk."""
    data = Path(parse_qs(urlsplit(postgres_server).query)["host"][0])
    name = f"small{uuid.uuid4().hex}"
    with TemporaryDirectory(prefix="lab-tablespace-") as folder, mounted_disk(Path(folder), _DISK_SIZE) as disk:
        place = disk / "tables"
        place.mkdir()
        for each in (disk, place):
            os.chown(each, data.stat().st_uid, data.stat().st_gid)
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE {name} LOCATION '{place}'".encode())
            connection.execute(f"CREATE DATABASE {name} TABLESPACE {name}".encode())
            try:
                yield postgres_server.replace("/postgres?", f"/{name}?"), disk
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                connection.execute(f"DROP TABLESPACE {name}".encode())


def write_value(number: int) -> Any:
    def write(uow: Any) -> int:
        uow.key_values.set(f"value-{number}", _MUCH + uuid.uuid4().hex * 6_000)
        return number

    return write


def read_numbers(uow: Any) -> list[int]:
    return [number for number in range(201) if uow.key_values.get(f"value-{number}") is not None]


async def test_full_disk_of_the_server_loses_nothing_that_was_acknowledged(small_database: tuple[str, Path]) -> None:
    url, disk = small_database
    upgrade(url)
    store = Store(url, Cipher(new_key()))
    try:
        kept = [await store.transact(write_value(0))]
        assert await store.run_read_only(read_numbers) == kept  # a new connection may want to write a file at its start
        filler = fill(disk)
        failure: StoreUnreachableError | None = None
        for number in range(1, 200):
            try:
                kept.append(await store.transact(write_value(number)))
            except StoreUnreachableError as exc:
                failure = exc
                break
        assert failure is not None
        assert failure.fault is StoreFault.DISK_FULL
        assert store.health.outage is not None
        assert [each.condition.id.value for each in store.health.conditions] == ["store.disk_full"]

        assert await store.run_read_only(read_numbers) == kept, "what was acknowledged can be read, and nothing else"
        with pytest.raises(StoreUnreachableError):
            await store.probe()
        filler.unlink()
        await store.probe()
        store.health.recovered()
        kept.append(await store.transact(write_value(200)))
        assert await store.run_read_only(read_numbers) == kept
    finally:
        await store.close()
