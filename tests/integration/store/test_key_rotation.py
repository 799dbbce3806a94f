"""Encryption keys: a wrong one is told, and after a rotation, one that was killed in its middle too, the old one can go."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from sqlalchemy import Engine, event

from lab_agent.shared.errors import CryptoError
from lab_agent.store import key_rotation, vault_tables
from lab_agent.store.credential_records import StoredToken
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.key_rotation import KeyRotation, count_older, rotate_keys
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import DEADLINE
from tests.harness.forked_programs import process_context
from tests.integration.store.conftest import NOW, UnitOfWorkRunner, with_store

VALUES, KILLED_AT = 90, 3
OLD, NEW = new_key(), new_key()
CONTENTS = [f"name {number}".encode() for number in range(VALUES)]


async def transact(url: str, work: Any, *keys: str) -> Any:
    return await with_store(url, lambda store: UnitOfWorkRunner(store)(work), *keys)


def fill(uow: UnitOfWork) -> None:
    for number, content in enumerate(CONTENTS):
        uow.vault.save_identity(f"R{number:03}", content, at=NOW)  # type: ignore[arg-type]


def read(uow: UnitOfWork) -> list[bytes | None]:
    return [uow.vault.identity(f"R{number:03}") for number in range(VALUES)]  # type: ignore[arg-type]


async def test_wrong_key_is_detected_at_once(sql_url: str) -> None:
    """A new key before the old one is accepted."""
    await transact(sql_url, fill, OLD)
    for _ in range(2):
        with pytest.raises(CryptoError, match="not among those set"):
            await transact(sql_url, read, NEW)
    assert await transact(sql_url, read, NEW, OLD) == CONTENTS


async def test_old_key_can_be_retired(sql_url: str) -> None:
    def fill_more(uow: UnitOfWork) -> None:
        fill(uow)
        uow.vault.save_document(b"pdf", "application/pdf", at=NOW)
        uow.oauth_tokens.add(StoredToken(generation=1, access_token="a", refresh_token="r", expires_at=None))
        uow.oauth_tokens.add(StoredToken(generation=2, access_token="b", refresh_token=None, expires_at=None))

    await transact(sql_url, fill_more, OLD)
    told: list[tuple[int, int]] = []
    done = await with_store(sql_url, lambda store: rotate_keys(store, lambda *of: told.append(of)), NEW, OLD)
    assert done == KeyRotation(reencrypted=VALUES + 1 + 3, added_meanwhile=0, unreadable=0)
    assert told == sorted(told)
    assert told[-1] == (2 * (VALUES + 4), 2 * (VALUES + 4))
    assert (await with_store(sql_url, rotate_keys, NEW, OLD)).reencrypted == 0
    assert await transact(sql_url, read, NEW) == CONTENTS
    assert (await transact(sql_url, lambda uow: uow.oauth_tokens.current(), NEW)).access_token == "b"
    with pytest.raises(CryptoError):
        await transact(sql_url, read, OLD)


async def test_rotation_reports_unreadable_value_and_goes_on(sql_url: str) -> None:
    foreign = {"order_key": "R", "ciphertext": Cipher(new_key()).encrypt(b"x"), "kept_at": NOW}
    insert = vault_tables.identities.insert().values(**foreign)
    await transact(sql_url, fill, OLD)
    await with_store(sql_url, lambda store: store.write(lambda connection, _: connection.execute(insert)), OLD)
    assert await with_store(sql_url, rotate_keys, NEW, OLD) == KeyRotation(reencrypted=VALUES, added_meanwhile=0, unreadable=1)


async def test_rotation_keeps_old_key_while_another_process_uses_it(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rotate_all, passes = key_rotation._rotate_all, []

    async def rotate_beside_old_process(rotated: Store, tell_done: Any) -> Any:
        passes.append(rotated)
        if len(passes) == 2:
            await transact(sql_url, lambda uow: uow.vault.save_identity("R", b"y", at=NOW), OLD)
        return await rotate_all(rotated, tell_done)

    await transact(sql_url, fill, OLD)
    monkeypatch.setattr(key_rotation, "_rotate_all", rotate_beside_old_process)
    done = await with_store(sql_url, rotate_keys, NEW, OLD)
    assert done == KeyRotation(reencrypted=VALUES + 1, added_meanwhile=1, unreadable=0)
    await transact(sql_url, lambda uow: uow.key_values.get("a"), OLD)  # the check value still has the old key


def rotate_until_killed(url: str, new: str, old: str, moment: str) -> None:
    """Rotate in a process that is killed in the transaction of a portion: at its `begin`, or right before its `commit`."""
    reached = 0

    def reach(_: Any) -> None:
        nonlocal reached
        reached += 1
        if reached == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, moment, reach)
    asyncio.run(with_store(url, rotate_keys, new, old))


@pytest.mark.parametrize("moment", ["begin", "commit"])
async def test_rotation_that_is_killed_is_finished_by_the_next(sql_url: str, moment: str) -> None:
    async def count() -> int:
        return int(await with_store(sql_url, lambda store: count_older(store, store.cipher), NEW, OLD))

    await transact(sql_url, fill, OLD)
    assert await count() == VALUES
    process = process_context().Process(target=rotate_until_killed, args=(sql_url, NEW, OLD, moment))
    process.start()
    await asyncio.to_thread(process.join, DEADLINE)
    assert process.exitcode == -signal.SIGKILL
    left = await count()
    assert 0 < left < VALUES
    assert await with_store(sql_url, rotate_keys, NEW, OLD) == KeyRotation(reencrypted=left, added_meanwhile=0, unreadable=0)
    assert await count() == 0
    assert await transact(sql_url, read, NEW) == CONTENTS
