"""Users and their sessions on the page: who may manage them, what each action does and records, and that an admin stays."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from lab_agent.accounts import Role
from lab_agent.domain.audit import AuditAction
from tests.integration.status.conftest import PASSWORD, post

NEW = "another long password"


async def records(pages: Any, action: AuditAction) -> list[tuple[str, str, str]]:
    return [(each.actor, each.subject, each.details) for each in await pages.records(action) if each.channel == "page"]


def sessions_on(html: str, path: str = "/sessions") -> list[str]:
    return re.findall(rf'action="{path}/([0-9a-f]{{64}})/end"', html)


async def may_sign_in(pages: Any, name: str, password: str) -> bool:
    return bool((await pages.new_client().post("/sign-in", data={"name": name, "password": password})).status_code == 303)


async def test_user_is_added_with_chosen_or_generated_password(pages: Any):
    """What was generated is shown once."""
    client = await pages.signed_in_client(Role.ADMIN)
    answer = await post(client, "/users", name=" Anna ", role="operator", password=NEW, password_again=NEW)
    assert answer.headers["location"] == "/users?flash=user-added"
    assert "The user was added." in (await client.get(answer.headers["location"])).text
    assert await may_sign_in(pages, "anna", NEW)
    assert await records(pages, AuditAction.USER_ADDED) == [("admin", "anna", '{"role":"operator"}')]
    answer = await post(client, "/users", name="bert", role="viewer", generate="yes")
    (password,) = re.findall(r"<code>((?:\w{4}-){4}\w{4})</code>", answer.text)
    assert answer.headers["cache-control"] == "no-store"
    assert await may_sign_in(pages, "bert", password)
    assert password not in (await client.get("/users")).text


async def test_what_is_wrong_with_new_user_is_told(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for fields, told in (
        ({"name": "viewer"}, "There is already a user of this name."),
        ({"name": "<script>alert('x')</script>"}, "A name has 1 to 64 letters"),
        ({"password": "short", "password_again": "short"}, "A password has 12 to 256 characters."),
        ({"password_again": "something else"}, "The two passwords differ."),
        ({"role": "emperor"}, "Choose one of the roles."),
    ):
        entered = {"name": "anna", "role": "operator", "password": NEW, "password_again": NEW, **fields}
        answer = await post(client, "/users", **entered)
        assert (answer.status_code, told in answer.text) == (422, True), fields
        assert [each for each in ("<script>alert", NEW) if each in answer.text] == []
    html = (await client.get("/users")).text
    assert (html.count('id="user-'), "argon2" in html) == (3, False)


async def test_role_is_changed_and_ends_sessions(pages: Any):
    """Nobody can sign in once removed, either."""
    other = await pages.signed_in_client(Role.OPERATOR)
    client = await pages.signed_in_client(Role.ADMIN)
    pages.clock.advance(seconds=1)
    assert (await post(client, "/users/operator/role", role="viewer")).headers["location"] == "/users?flash=role-changed"
    assert (await other.get("/")).status_code == 303
    assert len(sessions_on((await client.get("/users")).text)) == 1
    assert await records(pages, AuditAction.USER_ROLE_CHANGED) == [("admin", "operator", '{"role":"viewer"}')]
    same = await post(client, "/users/operator/role", role="viewer")
    assert same.headers["location"] == "/users?flash=nothing-changed"
    assert (await post(client, "/users/operator/role", role="emperor")).status_code == 422
    assert (await post(client, "/users/nobody/role", role="viewer")).status_code == 404
    other = await pages.signed_in_client(Role.OPERATOR)
    assert (await post(client, "/users/operator/remove")).headers["location"] == "/users?flash=user-removed"
    assert (await other.get("/")).status_code == 303
    assert await records(pages, AuditAction.USER_REMOVED) == [("admin", "operator", "{}")]


async def test_right_to_reveal_is_given_and_taken(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for choice, flash, status in (("yes", "given", 200), ("no", "taken", 403)):
        other = await pages.signed_in_client(Role.VIEWER)
        answer = await post(client, "/users/viewer/reveal", may_reveal=choice)
        assert answer.headers["location"] == f"/users?flash=reveal-{flash}"
        assert (await other.get("/orders/patient")).status_code == 303, "the session has ended"
        other = await pages.signed_in_client(Role.VIEWER)
        assert (await other.get("/orders/patient")).status_code == status
        pages.clock.advance(seconds=1)
    assert (await post(client, "/users/viewer/reveal")).status_code == 422
    found = await records(pages, AuditAction.USER_REVEAL_CHANGED)
    assert found == [("admin", "viewer", '{"may_reveal":1}'), ("admin", "viewer", '{"may_reveal":0}')]


async def test_password_of_other_user_is_set(pages: Any):
    other = await pages.signed_in_client(Role.VIEWER)
    client = await pages.signed_in_client(Role.ADMIN)
    for name, again, status in (("viewer", "x", 422), ("admin", NEW, 422), ("viewer", NEW, 303)):
        assert (await post(client, f"/users/{name}/password", password=NEW, password_again=again)).status_code == status
    assert (await other.get("/")).status_code == 303
    assert await may_sign_in(pages, "viewer", NEW)
    assert await records(pages, AuditAction.USER_PASSWORD_CHANGED) == [("admin", "viewer", "{}")]


async def test_last_admin_stays_and_another_needs_a_tick(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    changes = (("/users/admin/role", {"role": "viewer"}), ("/users/admin/remove", {}))
    for path, fields in changes:
        answer = await post(client, path, confirmed="yes", **fields)
        assert (answer.status_code, "admin is the only admin" in answer.text) == (409, True)
    assert (await pages.context.accounts.get("admin")).role is Role.ADMIN
    assert 'action="/users/admin/remove"' not in (await client.get("/users")).text
    await pages.context.accounts.set_role("operator", Role.ADMIN, now=pages.clock.now())
    for path, fields in changes:
        answer = await post(client, path, **fields)
        assert (answer.status_code, "only another admin can undo it" in answer.text) == (422, True)
    assert (await post(client, "/users/admin/role", role="viewer", confirmed="yes")).status_code == 303
    assert (await client.get("/users")).status_code == 303
    assert (await pages.context.accounts.get("admin")).role is Role.VIEWER


async def test_ended_session_does_not_work_at_once(pages: Any):
    """One of another user, or all of them but one's own."""
    other = await pages.signed_in_client(Role.OPERATOR)
    client = await pages.signed_in_client(Role.ADMIN)
    html = (await client.get("/users")).text
    mine, theirs = sessions_on(html)
    assert (mine != theirs, "127.0.0.1" in html) == (True, True)
    for flash in ("session-ended", "nothing-changed"):
        assert (await post(client, f"/sessions/{theirs}/end")).headers["location"] == f"/users?flash={flash}"
    assert [(await each.get("/")).status_code for each in (other, client)] == [303, 200]
    others = [await pages.signed_in_client(Role.OPERATOR) for _ in range(2)]
    answer = await post(client, "/users/operator/sessions/end")
    assert "The sessions were ended: 2." in (await client.get(answer.headers["location"])).text
    await post(client, "/users/admin/sessions/end")
    assert [(await each.get("/")).status_code for each in (*others, client)] == [303, 303, 200]
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
    assert (await other.get("/")).status_code == 303


async def test_own_password_is_changed_with_the_old_one(pages: Any):
    """Guessing it is slowed down."""
    other = await pages.signed_in_client(Role.VIEWER)
    client = await pages.signed_in_client(Role.VIEWER)
    pages.clock.advance(seconds=1)
    fields = {"old_password": PASSWORD, "password": NEW, "password_again": NEW}
    for password, again in (("short", "short"), (NEW, "differs")):
        wrong = {**fields, "password": password, "password_again": again, "generate": "yes"}
        assert (await post(client, "/account/password", **wrong)).status_code == 422
    for _ in range(3):
        answer = await post(client, "/account/password", **{**fields, "old_password": "a guess at it"})
        assert (answer.status_code, "The old password is wrong" in answer.text) == (422, True)
    slowed = await post(client, "/account/password", **fields)
    assert (slowed.status_code, slowed.headers["retry-after"]) == (429, "2")
    rejected = await records(pages, AuditAction.SIGN_IN_REJECTED)
    assert rejected == [("viewer", "viewer", '{"form":"own_password"}')] * 3
    pages.clock.advance(seconds=1.1)
    answer = await post(client, "/account/password", **fields)
    assert answer.headers["location"] == "/account?flash=own-password-set"
    assert [(await each.get("/account")).status_code for each in (client, other)] == [200, 303]
    assert await may_sign_in(pages, "viewer", NEW)
    assert await records(pages, AuditAction.USER_PASSWORD_CHANGED) == [("viewer", "viewer", "{}")]


async def test_own_sessions_are_ended_and_no_other(pages: Any):
    admin, other = [await pages.signed_in_client(role) for role in (Role.ADMIN, Role.VIEWER)]
    (of_admin,), (of_other,) = [sessions_on((await each.get("/account")).text, "/account/sessions") for each in (admin, other)]
    client, third = [await pages.signed_in_client(Role.VIEWER) for _ in range(2)]
    assert (await post(client, f"/account/sessions/{of_admin}/end")).status_code == 404
    assert (await post(client, f"/account/sessions/{of_other}/end")).status_code == 303
    assert [(await each.get("/")).status_code for each in (admin, other, third)] == [200, 303, 200]
    await post(client, "/account/sessions/end")
    assert [(await each.get("/")).status_code for each in (client, admin, third)] == [200, 200, 303]
    ended = await records(pages, AuditAction.SESSION_ENDED)
    assert ended == [("viewer", "viewer", "{}"), ("viewer", "viewer", '{"sessions":1}')]


async def test_password_of_somebody_else_is_changed_before_all_else(pages: Any):
    """One that was set when the user was added, or later; nothing else is open but to sign out."""
    admin = await pages.signed_in_client(Role.ADMIN)
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now())
    for name, path, fields in (("bert", "/users", {"name": "bert", "role": "viewer"}), ("anna", "/users/anna/password", {})):
        given = re.search(r"<code>([^<]+)</code>", (await post(admin, path, generate="yes", **fields)).text)
        assert given is not None
        user = pages.new_client()
        await user.post("/sign-in", data={"name": name, "password": given[1]})
        for closed in ("/", "/orders", "/orders/R1", "/live"):
            answer = await user.get(closed)
            assert (answer.status_code, answer.headers["location"]) == (303, "/account"), closed
        page = (await user.get("/account")).text
        assert "<title>Choose your own password" in page
        assert [each for each in ("Where you are signed in", 'id="live"') if each in page] == []
        assert "has to choose a password" in (await admin.get("/users")).text
        same = {"old_password": given[1], "password": given[1], "password_again": given[1]}
        answer = await post(user, "/account/password", **same)
        assert (answer.status_code, "The new password is the old one" in answer.text) == (422, True)
        answer = await post(user, "/account/password", **{**same, "password": NEW, "password_again": NEW})
        assert answer.headers["location"] == "/?flash=own-password-set"
        assert (await user.get("/orders")).status_code == 200
        assert "has to choose a password" not in (await admin.get("/users")).text
        assert (name, name, "{}") in await records(pages, AuditAction.USER_PASSWORD_CHANGED)


async def test_password_to_change_leaves_sign_out_open(pages: Any):
    """On a page that only shows it asks for none: where nobody may act, nobody could choose one either."""
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now(), must_change_password=True)
    anna = pages.new_client()
    await anna.post("/sign-in", data={"name": "anna", "password": PASSWORD})
    assert (await post(anna, "/sign-out")).headers["location"] == "/sign-in"
    pages.context = replace(pages.context, settings=pages.context.settings.model_copy(update={"read_only": True}))
    anna = pages.new_client()
    await anna.post("/sign-in", data={"name": "anna", "password": PASSWORD})
    assert (await anna.get("/orders")).status_code == 200
