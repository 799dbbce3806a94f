"""Who gets in, how it ends, and how guessing is slowed down."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lab_agent.operations.accounts import Role
from lab_agent.status.password_attempts import MAX_WAIT, AttemptThrottle
from lab_agent.status.session_start import local_path
from lab_agent.status.sessions import SESSION_COOKIE
from lab_agent.store.crypto import Cipher, new_key
from tests.harness.clock import DEADLINE
from tests.integration.status.conftest import BASE, PASSWORD, post


async def attempt(client: httpx.AsyncClient, name: str, password: str, **fields: str) -> httpx.Response:
    return await client.post("/sign-in", data={"name": name, "password": password, **fields})


async def test_session_cookie_is_http_only_and_same_site(pages: Any):
    """And secure where the page is used over TLS."""
    client = pages.new_client()
    answer = await attempt(client, " Operator ", PASSWORD, next="/orders?state=held")
    assert (answer.status_code, answer.headers["location"]) == (303, "/orders?state=held")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=28800"} <= set(cookie.split("; "))
    assert "operator" not in cookie
    assert (await client.get("/")).status_code == 200
    answer = await client.post(f"https{BASE[4:]}/sign-in", data={"name": "viewer", "password": PASSWORD})
    assert "Secure" in answer.headers["set-cookie"]


async def test_unknown_user_and_wrong_password_look_alike(pages: Any):
    wrong, unknown = [await attempt(pages.new_client(), name, "not the password") for name in ("operator", "nobody")]
    assert (wrong.status_code, wrong.text, "set-cookie" in wrong.headers) == (unknown.status_code, unknown.text, False)
    assert wrong.status_code == 401


async def test_session_ends_with_time_sign_out_and_account(pages: Any):
    """Also where its cookie was copied."""
    client = await pages.signed_in_client(Role.VIEWER)
    for hours, status in ((7.9, 200), (0.2, 303)):
        pages.clock.advance(hours=hours)
        assert (await client.get("/")).status_code == status
    client = await pages.signed_in_client(Role.VIEWER)
    copied = client.cookies[SESSION_COOKIE]
    assert (await post(client, "/sign-out")).status_code == 303
    client.cookies.set(SESSION_COOKIE, copied, domain="127.0.0.1")
    assert (await client.get("/")).status_code == 303
    accounts, now = pages.context.accounts, pages.clock.now()
    for role, change in (
        (Role.OPERATOR, accounts.set_role("operator", Role.VIEWER, now=now)),
        (Role.VIEWER, accounts.set_password("viewer", "another password", now=now)),
        (Role.ADMIN, accounts.remove("admin", now=now)),
    ):
        client = await pages.signed_in_client(role)
        await change
        assert (await client.get("/")).status_code == 303, role


async def test_forged_cookie_is_no_session(pages: Any):
    """Neither is what was encrypted for another purpose, or with another key."""
    content = json.dumps({"id": "1", "user": "admin", "account_changed_at": "", "started_at": "", "csrf_token": ""}).encode()
    sealed = (pages.context.cipher.encrypt(content), Cipher(new_key()).encrypt(b"status-session-2:" + content))
    for forged in (b"", b"x", b"gAAAAA==", "é".encode(), b"a" * 5000, *sealed):
        client = pages.new_client(headers={"cookie": f"{SESSION_COOKIE}=".encode() + forged})
        assert (await client.get("/")).status_code == 303, forged


async def test_guessing_is_throttled_even_for_right_password(pages: Any):
    client = pages.new_client()
    for _ in range(3):
        assert (await attempt(client, "operator", "a guess at it")).status_code == 401
    slowed = await attempt(client, "OPERATOR", PASSWORD)
    assert (slowed.status_code, slowed.headers["retry-after"], "set-cookie" in slowed.headers) == (429, "2", False)
    assert (await attempt(client, "viewer", PASSWORD)).status_code == 303
    pages.clock.advance(seconds=1.1)
    assert (await attempt(client, "operator", PASSWORD)).status_code == 303


@pytest.mark.parametrize(("guesses", "checked"), [(60, 3), (4, 3), (2, 2)])
async def test_parallel_guesses_are_reserved_before_checked(pages: Any, guesses: int, checked: int):
    """As many as come in one go are no way around the wait, and the right one among the late is not checked either."""
    tried = []

    def verify(password: str, _: str | None) -> bool:
        tried.append(password)
        return False

    pages.context.accounts._passwords.verify = verify
    client = pages.new_client()
    answers = await asyncio.gather(*(attempt(client, "operator", f"a guess at it {number}") for number in range(guesses)))
    statuses = Counter(each.status_code for each in answers)
    assert (len(tried), statuses[401], statuses[429]) == (checked, checked, guesses - checked)


async def test_failed_address_blocks_nobody_behind_it(pages: Any):
    client = pages.new_client()
    for number in range(30):
        assert (await attempt(client, f"name{number}", "a guess at it")).status_code == 401
    for name in ("viewer", "operator", "admin"):
        assert (await attempt(pages.new_client(), name, PASSWORD)).status_code == 303


async def test_one_address_takes_its_share_of_places(pages: Any):
    """A flood of names takes eight places, so whoever comes from elsewhere is checked in turn."""
    go = threading.Event()
    right = pages.context.accounts._passwords.verify

    def verify(password: str, hashed: str | None) -> bool:
        assert go.wait(DEADLINE)
        return bool(right(password, hashed))

    pages.context.accounts._passwords.verify = verify
    flood = asyncio.gather(*(attempt(pages.new_client(), f"name{number}", "a guess") for number in range(50)))
    other = asyncio.create_task(attempt(pages.new_client(address="198.51.100.7"), "viewer", PASSWORD))
    await asyncio.sleep(0.3)
    go.set()
    assert Counter(each.status_code for each in await flood) == {401: 8, 429: 42}
    assert (await other).status_code == 303


async def test_cross_site_login_is_rejected(pages: Any):
    for origin, status in (("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:8481", 303)):
        assert (await attempt(pages.new_client(headers={"origin": origin}), "operator", PASSWORD)).status_code == status, origin


def test_login_never_redirects_to_other_site():
    assert local_path("/orders?search=a%20b") == "/orders?search=a%20b"
    elsewhere = ("//evil.example/", "https://evil.example/", "/\\evil.example", "/a\r\nset-cookie: x", "/\tx", "/sign-out", "")
    assert {local_path(path) for path in elsewhere} == {"/"}


async def test_oversized_or_missing_form_is_rejected(pages: Any):
    client = pages.new_client()
    assert (await attempt(client, "operator", "x" * 20_000)).status_code == 413
    assert (await client.post("/sign-in", json={"name": "operator"})).status_code == 415
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await client.post("/sign-in", content=b"name=%ff&password=x", headers=form)).status_code == 400


def test_throttle_delay_doubles_up_to_a_minute():
    """It is forgotten after a while, and what is kept is bounded."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    throttle = AttemptThrottle(free_attempts=2)
    waits = []
    for _ in range(12):
        assert throttle.reserve("a", now) == timedelta()
        waits.append(throttle.reserve("a", now).total_seconds() if waits else 0)
        now += timedelta(seconds=waits[-1])
    assert (waits[:6], waits[-1]) == ([0, 1, 2, 4, 8, 16], MAX_WAIT.total_seconds())
    assert throttle.reserve("b", now) == timedelta()
    throttle.reserve("a", now)
    assert throttle.reserve("a", now) > timedelta()
    assert throttle.reserve("a", now + timedelta(minutes=16)) == timedelta()
    throttle.reset("a")
    assert [throttle.reserve("a", now) for _ in range(2)] == [timedelta()] * 2
    throttle = AttemptThrottle(free_attempts=1)
    for _ in range(5):
        assert throttle.reserve("a", now) == timedelta()
        throttle.release("a")  # it counts for nothing
    for number in range(5_000):
        throttle.reserve(str(number), now)
    assert len(throttle._failures) == 2_000
    assert throttle.reserve("4999", now) > timedelta()
