"""Users of the status page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lab_agent.operations.accounts import Accounts, Role
from lab_agent.shared.errors import AlreadyExistsError, DataInvalidError, StoreError
from lab_agent.store.credential_records import UserRecord
from lab_agent.store.crypto import Passwords
from tests.integration.store.conftest import NOW

PASSWORD = "correct horse battery"
CHEAP = {"memory_cost": 64, "parallelism": 1}


@pytest.fixture
def accounts(store):
    return Accounts(store, Passwords(time_cost=1, **CHEAP))


async def test_user_logs_in(accounts):
    added = await accounts.add(" Anna ", PASSWORD, Role.OPERATOR, now=NOW)
    assert (added.name, added.role) == ("anna", Role.OPERATOR)
    assert await accounts.verify("ANNA", PASSWORD) == added
    assert await accounts.verify("anna", PASSWORD + "x") is None
    assert await accounts.get("Anna") == added
    assert [added.has_role(role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)] == [True, True, False]


async def test_unknown_user_costs_one_hash(accounts, monkeypatch):
    verify, asked = Passwords.verify, []
    monkeypatch.setattr(Passwords, "verify", lambda *of: asked.append(of) or verify(*of))
    assert await accounts.verify("nobody", PASSWORD) is None
    assert len(asked) == 1


async def test_users_are_listed_changed_and_removed(accounts):
    for name in ("b", "a"):
        await accounts.add(name, PASSWORD, Role.VIEWER, now=NOW)
    later = NOW + timedelta(days=1)
    await accounts.set_role("b", Role.ADMIN, now=later)
    await accounts.set_password("a", "another good one", now=later)
    listed = [(each.name, each.role, each.changed_at) for each in await accounts.list()]
    assert listed == [("a", Role.VIEWER, later), ("b", Role.ADMIN, later)]
    assert await accounts.verify("a", PASSWORD) is None
    assert (await accounts.verify("a", "another good one")).name == "a"
    assert [await accounts.remove("a", now=later), await accounts.remove("a", now=later)] == [True, False]
    assert await accounts.verify("a", "another good one") is None


async def test_invalid_account_changes_are_rejected(accounts, transact):
    with pytest.raises(DataInvalidError) as caught:
        await accounts.add("no spaces", "short", Role.VIEWER, now=NOW)
    assert [problem.where for problem in caught.value.problems] == ["name", "password"]
    assert "short" not in str(caught.value).replace("too short", "")
    await accounts.add("a", PASSWORD, Role.VIEWER, now=NOW)
    with pytest.raises(AlreadyExistsError):
        await accounts.add("A", PASSWORD, Role.VIEWER, now=NOW)
    with pytest.raises(StoreError):
        await accounts.set_role("none", Role.VIEWER, now=NOW)
    with pytest.raises(DataInvalidError):
        await accounts.set_password("a", "x" * 257, now=NOW)
    assert await accounts.verify("a", "x" * 100_000) is None
    user = UserRecord(name="none", role=Role.VIEWER, password_hash="h", created_at=NOW, changed_at=NOW)
    with pytest.raises(StoreError):
        await transact.users.save(user)


async def test_outdated_hash_is_renewed_at_login(accounts, store, transact):
    await accounts.add("a", PASSWORD, Role.VIEWER, now=NOW)
    dearer = Passwords(time_cost=2, **CHEAP)
    before = (await transact.users.get("a")).password_hash
    assert await Accounts(store, dearer).verify("a", PASSWORD)
    after = (await transact.users.get("a")).password_hash
    assert before != after
    assert not dearer.needs_rehash(after)
