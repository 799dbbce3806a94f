"""What a page shows is read while its user is looked up, and for nobody without a session."""

from __future__ import annotations

import asyncio

import pytest

from lab_agent.accounts import Role
from lab_agent.errors import StoreError

PAGES = pytest.mark.parametrize(("path", "name"), [("/", "overview_page"), ("/orders", "order_list")])


@PAGES
async def test_page_is_read_once_and_for_nobody_without_session(pages, path, name, monkeypatch):
    begun = []
    read = getattr(pages.context.queries, name)

    async def note(*args, **fields):
        begun.append(path)
        return await read(*args, **fields)

    monkeypatch.setattr(pages.context.queries, name, note)
    client, other = await pages.signed_in_client(Role.VIEWER), pages.new_client()
    assert (await other.get(path)).status_code == 303
    assert begun == []
    assert (await client.get(path)).status_code == 200
    assert begun == [path]
    other.cookies.update(client.cookies)
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    answer = await other.get(path)
    assert (answer.status_code, answer.text) == (303, "")


@PAGES
async def test_failed_read_is_told_once(pages, path, name, monkeypatch, caplog):
    async def fail(*_, **__):
        raise StoreError("broken")

    client = await pages.signed_in_client(Role.VIEWER)
    monkeypatch.setattr(pages.context.queries, name, fail)
    assert (await client.get(path)).status_code == 500
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    assert (await client.get(path)).status_code == 303
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
