"""What a page shows is read while its user is looked up, and for nobody without a session."""

from __future__ import annotations

import asyncio

import pytest

from lab_agent.accounts import Role
from lab_agent.errors import StoreError

PAGES = {"/": "overview_page", "/orders": "order_list"}


@pytest.fixture(params=sorted(PAGES))
def path(request):
    return request.param


@pytest.fixture
def reads(pages, path, monkeypatch):
    """The reads of a page that were begun."""
    begun = []
    read = getattr(pages.context.queries, PAGES[path])

    async def note(*args, **fields):
        begun.append(path)
        return await read(*args, **fields)

    monkeypatch.setattr(pages.context.queries, PAGES[path], note)
    return begun


async def test_page_is_read_once(pages, path, reads):
    client = await pages.signed_in_client(Role.VIEWER)
    assert (await client.get(path)).status_code == 200
    assert len(reads) == 1


async def test_nothing_is_read_without_session(pages, path, reads):
    assert (await pages.new_client().get(path)).status_code == 303
    assert reads == []


async def test_ended_session_shows_nothing(pages, path):
    client, other = await pages.signed_in_client(Role.VIEWER), pages.new_client()
    other.cookies.update(client.cookies)
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    answer = await other.get(path)
    assert (answer.status_code, answer.text) == (303, "")


async def test_failed_read_is_told_once(pages, path, monkeypatch, caplog):
    async def fail(*_, **__):
        raise StoreError("broken")

    client = await pages.signed_in_client(Role.VIEWER)
    monkeypatch.setattr(pages.context.queries, PAGES[path], fail)
    assert (await client.get(path)).status_code == 500
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    assert (await client.get(path)).status_code == 303
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
