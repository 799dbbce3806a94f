"""`lab-agent db rotate-keys`, killed in its middle and run again: every value is of the newest key, and the old one can go."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from lab_agent.crypto import Cipher, new_key
from lab_agent.store.key_rotation import KeyRotation, count_older, rotate_keys
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from tests.harness.forked_programs import process_context

VALUES, KILLED_AT = 90, 3
OLD, NEW = new_key(), new_key()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = f"sqlite:///{tmp_path / 'lab.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    upgrade(found)
    return found


async def _with_store(url: str, work: Any, *keys: str) -> Any:
    store = SqlStore(url, Cipher(*keys))
    try:
        return await work(store)
    finally:
        await store.close()


def rotate_until_killed(url: str, new: str, old: str, moment: str) -> None:
    """Rotate in a process that is killed in the transaction of a portion: at its `begin`, or right before its `commit`."""
    reached = 0

    def reach(_: Any) -> None:
        nonlocal reached
        reached += 1
        if reached == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, moment, reach)
    asyncio.run(_with_store(url, rotate_keys, new, old))


@pytest.mark.parametrize("moment", ["begin", "commit"])
async def test_rotation_that_is_killed_is_finished_by_the_next(url: str, moment: str) -> None:
    def fill(uow: Any) -> None:
        for number in range(VALUES):
            uow.vault.save_identity(f"R{number:03}", f"name {number}".encode(), at=datetime.now(UTC))
        uow.commit()

    await _with_store(url, lambda store: store.run(fill), OLD)
    both = Cipher(NEW, OLD)
    assert await _with_store(url, lambda store: count_older(store, both), NEW, OLD) == VALUES
    process = process_context().Process(target=rotate_until_killed, args=(url, NEW, OLD, moment))
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL
    left = await _with_store(url, lambda store: count_older(store, both), NEW, OLD)
    assert 0 < left < VALUES
    assert await _with_store(url, rotate_keys, NEW, OLD) == KeyRotation(reencrypted=left, added_meanwhile=0, unreadable=0)
    assert await _with_store(url, lambda store: count_older(store, both), NEW, OLD) == 0

    def read(uow: Any) -> list[bytes]:
        return [uow.vault.identity(f"R{number:03}") for number in range(VALUES)]

    assert await _with_store(url, lambda store: store.run(read), NEW) == [f"name {number}".encode() for number in range(VALUES)]
