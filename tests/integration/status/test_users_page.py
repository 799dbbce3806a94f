"""Users and their sessions on the page: who may manage them, what each action does and records, and that an admin stays."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from lab_agent.operations.accounts import Role
from lab_agent.store.audit_records import AuditAction
from tests.integration.status.conftest import PASSWORD, post

NEW = "another long password"
CHOSEN = {"password": NEW, "password_again": NEW}


async def records(pages: Any, action: AuditAction) -> list[tuple[str, str, str]]:
    return [(each.actor, each.subject, each.details) for each in await pages.records(action) if each.channel == "page"]


def sessions_on(html: str, path: str = "/sessions") -> list[str]:
    return re.findall(rf'action="{path}/([0-9a-f]{{64}})/end"', html)


async def sign_in(pages: Any, name: str, password: str) -> tuple[Any, int]:
    client = pages.new_client()
    return client, (await client.post("/sign-in", data={"name": name, "password": password})).status_code


async def statuses(*clients: Any, path: str = "/") -> list[int]:
    return [(await each.get(path)).status_code for each in clients]


async def test_wrong_user_or_password_is_refused_unechoed(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for fields in (
        *({"name": name} for name in ("viewer", "<script>alert('x')</script>")),
        *({"password": each, "password_again": "short"} for each in ("short", "long, and repeated otherwise")),
        {"role": "emperor"},
    ):
        answer = await post(client, "/users", **{"name": "anna", "role": "operator", **CHOSEN, **fields})
        found = [each for each in ("<script>alert", NEW, "argon2") if each in answer.text]
        assert (answer.status_code, found, answer.text.count('id="user-')) == (422, [], 3), fields
    for name, again in (("viewer", "x"), ("admin", NEW)):  # one's own is changed with the old one
        assert (await post(client, f"/users/{name}/password", password=NEW, password_again=again)).status_code == 422


async def test_role_is_changed_and_ends_sessions(pages: Any):
    """Nobody can sign in once removed, either."""
    other, client = [await pages.signed_in_client(role) for role in (Role.OPERATOR, Role.ADMIN)]
    pages.clock.advance(seconds=1)
    for name, role, status, flash in (
        ("operator", "viewer", 303, "role-changed"),
        ("operator", "viewer", 303, "nothing-changed"),
        ("operator", "emperor", 422, None),
        ("nobody", "viewer", 404, None),
    ):
        answer = await post(client, f"/users/{name}/role", role=role)
        assert (answer.status_code, answer.headers.get("location")) == (status, flash and f"/users?flash={flash}")
    assert await statuses(other) == [303]
    assert await records(pages, AuditAction.USER_ROLE_CHANGED) == [("admin", "operator", '{"role":"viewer"}')]
    other = await pages.signed_in_client(Role.OPERATOR)
    assert (await post(client, "/users/operator/remove")).headers["location"] == "/users?flash=user-removed"
    assert await statuses(other) == [303]
    assert await records(pages, AuditAction.USER_REMOVED) == [("admin", "operator", "{}")]


async def test_right_to_reveal_is_given_and_taken(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for choice, flash, status in (("yes", "given", 200), ("no", "taken", 403)):
        other = await pages.signed_in_client(Role.VIEWER)
        answer = await post(client, "/users/viewer/reveal", may_reveal=choice)
        assert answer.headers["location"] == f"/users?flash=reveal-{flash}"
        again = await pages.signed_in_client(Role.VIEWER)
        assert await statuses(other, again, path="/orders/patient") == [303, status]
        pages.clock.advance(seconds=1)
    assert (await post(client, "/users/viewer/reveal")).status_code == 422
    found = await records(pages, AuditAction.USER_REVEAL_CHANGED)
    assert found == [("admin", "viewer", '{"may_reveal":1}'), ("admin", "viewer", '{"may_reveal":0}')]


async def test_last_admin_stays_and_another_needs_a_tick(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for confirmed, status, told in (("yes", 409, "admin is the only admin"), ("", 422, "only another admin can undo it")):
        for path, fields in (("/users/admin/role", {"role": "viewer"}), ("/users/admin/remove", {})):
            answer = await post(client, path, confirmed=confirmed, **fields)
            assert (answer.status_code, told in answer.text) == (status, True)
        assert (await pages.context.accounts.get("admin")).role is Role.ADMIN
        await pages.context.accounts.set_role("operator", Role.ADMIN, now=pages.clock.now())
    assert (await post(client, "/users/admin/role", role="viewer", confirmed="yes")).status_code == 303
    assert (await pages.context.accounts.get("admin")).role is Role.VIEWER


async def test_ended_session_does_not_work_at_once(pages: Any):
    """One of another user, or all of them but one's own."""
    other, client = [await pages.signed_in_client(role) for role in (Role.OPERATOR, Role.ADMIN)]
    _, theirs = sessions_on((await client.get("/users")).text)
    for flash in ("session-ended", "nothing-changed"):
        assert (await post(client, f"/sessions/{theirs}/end")).headers["location"] == f"/users?flash={flash}"
    assert await statuses(other, client) == [303, 200]
    others = [await pages.signed_in_client(Role.OPERATOR) for _ in range(2)]
    await post(client, "/users/operator/sessions/end")
    await post(client, "/users/admin/sessions/end")
    assert await statuses(*others, client) == [303, 303, 200]
    ended = await records(pages, AuditAction.SESSION_ENDED)
    assert ended == [("admin", "operator", "{}"), ("admin", "operator", '{"sessions":2}')]


async def test_ended_session_is_not_revived_by_its_requests(pages: Any):
    """A request that was under way when the session was ended notes when it was seen, to the minute, and nothing more."""
    other = await pages.signed_in_client(Role.OPERATOR)
    sessions = other._transport.app.state.sessions
    pages.clock.advance(minutes=5)
    await other.get("/")
    (stale,) = await sessions.list()
    assert stale.seen_at == pages.clock.now()
    await sessions.end_other(stale.id, by="admin")
    pages.clock.advance(minutes=5)
    await sessions._note_seen(stale)
    assert await statuses(other) == [303]


async def test_own_password_is_changed_with_the_old_one(pages: Any):
    """Guessing it is slowed down."""
    other, client = [await pages.signed_in_client(Role.VIEWER) for _ in range(2)]
    pages.clock.advance(seconds=1)
    fields = {"old_password": PASSWORD, **CHOSEN}
    for password, again in (("short", "short"), (NEW, "differs")):
        wrong = {**fields, "password": password, "password_again": again, "generate": "yes"}
        assert (await post(client, "/account/password", **wrong)).status_code == 422
    for _ in range(3):
        assert (await post(client, "/account/password", **{**fields, "old_password": "a guess at it"})).status_code == 422
    slowed = await post(client, "/account/password", **fields)
    assert (slowed.status_code, slowed.headers["retry-after"]) == (429, "2")
    rejected = await records(pages, AuditAction.SIGN_IN_REJECTED)
    assert rejected == [("viewer", "viewer", '{"form":"own_password"}')] * 3
    pages.clock.advance(seconds=1.1)
    answer = await post(client, "/account/password", **fields)
    assert answer.headers["location"] == "/account?flash=own-password-set"
    assert await statuses(client, other, path="/account") == [200, 303]
    assert (await sign_in(pages, "viewer", NEW))[1] == 303
    assert await records(pages, AuditAction.USER_PASSWORD_CHANGED) == [("viewer", "viewer", "{}")]


async def test_own_sessions_are_ended_and_no_other(pages: Any):
    admin, other = [await pages.signed_in_client(role) for role in (Role.ADMIN, Role.VIEWER)]
    (of_admin,), (of_other,) = [sessions_on((await each.get("/account")).text, "/account/sessions") for each in (admin, other)]
    client, third = [await pages.signed_in_client(Role.VIEWER) for _ in range(2)]
    assert (await post(client, f"/account/sessions/{of_admin}/end")).status_code == 404
    assert (await post(client, f"/account/sessions/{of_other}/end")).status_code == 303
    assert await statuses(admin, other, third) == [200, 303, 200]
    await post(client, "/account/sessions/end")
    assert await statuses(client, admin, third) == [200, 200, 303]
    ended = await records(pages, AuditAction.SESSION_ENDED)
    assert ended == [("viewer", "viewer", "{}"), ("viewer", "viewer", '{"sessions":1}')]


async def test_password_of_somebody_else_is_changed_before_all_else(pages: Any):
    """One that was generated and shown once when the user was added, or later; nothing else is open."""
    admin = await pages.signed_in_client(Role.ADMIN)
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now())
    for name, path, fields in (("bert", "/users", {"name": " Bert ", "role": "viewer"}), ("anna", "/users/anna/password", {})):
        shown = await post(admin, path, generate="yes", **fields)
        (given,) = re.findall(r"<code>((?:\w{4}-){4}\w{4})</code>", shown.text)
        assert (shown.headers["cache-control"], given in (await admin.get("/users")).text) == ("no-store", False)
        user, _ = await sign_in(pages, name, given)
        for closed in ("/", "/orders", "/orders/R1", "/live"):
            answer = await user.get(closed)
            assert (answer.status_code, answer.headers["location"]) == (303, "/account"), closed
        page = (await user.get("/account")).text
        assert [each for each in ("Where you are signed in", 'id="live"') if each in page] == []
        for password, status in ((given, 422), (NEW, 303)):
            chosen = {"password": password, "password_again": password}
            assert (await post(user, "/account/password", old_password=given, **chosen)).status_code == status
        assert await statuses(user, path="/orders") == [200]
        assert (name, name, "{}") in await records(pages, AuditAction.USER_PASSWORD_CHANGED)
    assert await records(pages, AuditAction.USER_ADDED) == [("admin", "bert", '{"role":"viewer"}')]


async def test_password_to_change_leaves_sign_out_open(pages: Any):
    """On a page that only shows it asks for none: where nobody may act, nobody could choose one either."""
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now(), must_change_password=True)
    anna, _ = await sign_in(pages, "anna", PASSWORD)
    assert (await post(anna, "/sign-out")).headers["location"] == "/sign-in"
    pages.context = replace(pages.context, settings=pages.context.settings.model_copy(update={"read_only": True}))
    anna, _ = await sign_in(pages, "anna", PASSWORD)
    assert await statuses(anna, path="/orders") == [200]
