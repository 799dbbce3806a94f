"""Users and their sessions on the page: who may manage them, what each action does and records, and that an admin stays."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.audit_origin import find_origin
from lab_agent.domain.audit import AuditAction, AuditChannel
from lab_agent.status import account_page, audit_page, users_page
from lab_agent.status.auth import require_admin, require_own_action
from lab_agent.status.forms import verify_csrf_token
from lab_agent.store.audit_verification import iterate_records
from tests.integration.status.conftest import PASSWORD, SECRETS, form_token

NEW = "another long password"
ACTIONS = (
    "/users",
    "/users/viewer/role",
    "/users/viewer/reveal",
    "/users/viewer/password",
    "/users/viewer/remove",
    "/users/viewer/sessions/end",
    "/sessions/abc/end",
)


@pytest.fixture(autouse=True)
def agent(pages: Any) -> None:
    """The pages are those of a daemon."""
    pages.context.store._origin = find_origin(AuditChannel.AGENT)


async def post(client: Any, path: str, page: str = "/account", **fields: str) -> Any:
    token = form_token((await client.get(page)).text)
    return await client.post(path, data={"csrf_token": token, **fields})


async def records(pages: Any, action: AuditAction) -> list[tuple[str, str, str]]:
    found = await pages.context.store.read(lambda connection: tuple(iterate_records(connection)))
    return [(each.actor, each.subject, each.details) for each in found if each.action == action and each.channel == "page"]


def sessions_on(html: str, path: str = "/sessions") -> list[str]:
    return re.findall(rf'action="{path}/([0-9a-f]{{64}})/end"', html)


async def may_sign_in(pages: Any, name: str, password: str) -> bool:
    return bool((await pages.new_client().post("/sign-in", data={"name": name, "password": password})).status_code == 303)


# --- who may -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_users_are_managed_by_admins_alone(pages: Any, role: Role):
    client = await pages.signed_in_client(role)
    before = await pages.context.accounts.list()
    assert (await client.get("/users")).status_code == 403
    fields = {"name": "new", "role": "admin", "password": NEW, "password_again": NEW, "may_reveal": "yes", "confirmed": "yes"}
    for path in ACTIONS:
        assert (await post(client, path, **fields)).status_code == 403
    assert await pages.context.accounts.list() == before
    assert (await client.get("/")).status_code == 200


async def test_nobody_acts_where_page_only_shows(pages: Any):
    pages.context = replace(pages.context, settings=pages.context.settings.model_copy(update={"read_only": True}))
    client = await pages.signed_in_client(Role.ADMIN)
    shown = await client.get("/users")
    assert shown.status_code == 200
    assert 'action="/users' not in shown.text
    for path in (*ACTIONS, "/account/password", "/account/sessions/end", "/account/sessions/abc/end"):
        assert (await post(client, path, password=NEW, password_again=NEW, old_password=PASSWORD)).status_code == 403
    assert (await client.get("/audit")).status_code == 200


def test_every_action_verifies_token_and_role():
    def calls(dependant: Any) -> set[Any]:
        return {dependant.call}.union(*(calls(each) for each in dependant.dependencies))

    routes = [route for module in (users_page, account_page, audit_page) for route in module.router.routes]
    actions = {route.path: calls(route.dependant) for route in routes if route.methods - {"GET", "HEAD"}}
    assert [path for path, used in actions.items() if verify_csrf_token not in used] == []
    own = {path for path, used in actions.items() if require_admin not in used}
    assert own == {"/account/password", "/account/sessions/{session}/end", "/account/sessions/end"}
    assert all(require_own_action in actions[path] for path in own)


async def test_form_without_token_does_nothing(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for path in ACTIONS:
        assert (await client.post(path, data={"role": "admin", "may_reveal": "yes"})).status_code == 403


# --- users ---------------------------------------------------------------------------------------------------------------
async def test_users_are_listed_with_roles_and_rights(seeded: Any):
    client = await seeded.signed_in_client(Role.ADMIN)
    await seeded.context.accounts.set_reveal("operator", may_reveal=True, now=seeded.clock.now())
    html = (await client.get("/users")).text
    assert [f'id="user-{role.value}"' in html for role in Role] == [True] * 3
    row = html.split('id="user-operator"')[1].split("</li>")[0]
    assert "✓</span> yes" in row
    assert "argon2" not in html
    assert [secret for secret in SECRETS if secret in html] == []


async def test_user_is_added_with_chosen_password(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    answer = await post(client, "/users", name=" Anna ", role="operator", password=NEW, password_again=NEW)
    assert answer.headers["location"] == "/users?flash=user-added"
    assert "The user was added." in (await client.get(answer.headers["location"])).text
    assert await may_sign_in(pages, "anna", NEW)
    assert await records(pages, AuditAction.USER_ADDED) == [("admin", "anna", '{"role":"operator"}')]


async def test_generated_password_is_shown_once(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    answer = await post(client, "/users", name="anna", role="viewer", generate="yes")
    (password,) = re.findall(r"<code>((?:\w{4}-){4}\w{4})</code>", answer.text)
    assert answer.headers["cache-control"] == "no-store"
    assert await may_sign_in(pages, "anna", password)
    assert password not in (await client.get("/users")).text


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "viewer"}, "There is already a user of this name."),
        ({"name": "<script>alert('x')</script>"}, "A name has 1 to 64 letters"),
        ({"name": ""}, "A name has 1 to 64 letters"),
        ({"password": "short", "password_again": "short"}, "A password has 12 to 256 characters."),
        ({"password_again": "something else"}, "The two passwords differ."),
        ({"role": "emperor"}, "Choose one of the roles."),
    ],
)
async def test_what_is_wrong_with_new_user_is_told(pages: Any, fields: dict[str, str], told: str):
    client = await pages.signed_in_client(Role.ADMIN)
    entered = {"name": "anna", "role": "operator", "password": NEW, "password_again": NEW, **fields}
    answer = await post(client, "/users", **entered)
    assert answer.status_code == 422
    assert told in answer.text
    assert "<script>alert" not in answer.text
    assert NEW not in answer.text
    assert len(await pages.context.accounts.list()) == 3


async def test_role_is_changed_and_ends_sessions(pages: Any):
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


async def test_right_to_reveal_is_given_and_taken(pages: Any):
    other = await pages.signed_in_client(Role.VIEWER)
    client = await pages.signed_in_client(Role.ADMIN)
    assert (await other.get("/orders/patient")).status_code == 403
    answer = await post(client, "/users/viewer/reveal", may_reveal="yes")
    assert answer.headers["location"] == "/users?flash=reveal-given"
    assert (await other.get("/orders/patient")).status_code == 303
    other = await pages.signed_in_client(Role.VIEWER)
    assert (await other.get("/orders/patient")).status_code == 200
    pages.clock.advance(seconds=1)
    answer = await post(client, "/users/viewer/reveal", may_reveal="no")
    assert answer.headers["location"] == "/users?flash=reveal-taken"
    other = await pages.signed_in_client(Role.VIEWER)
    assert (await other.get("/orders/patient")).status_code == 403
    assert (await post(client, "/users/viewer/reveal")).status_code == 422
    found = await records(pages, AuditAction.USER_REVEAL_CHANGED)
    assert found == [("admin", "viewer", '{"may_reveal":1}'), ("admin", "viewer", '{"may_reveal":0}')]


async def test_password_of_other_user_is_set(pages: Any):
    other = await pages.signed_in_client(Role.VIEWER)
    client = await pages.signed_in_client(Role.ADMIN)
    assert (await post(client, "/users/viewer/password", password=NEW, password_again="x")).status_code == 422
    answer = await post(client, "/users/viewer/password", password=NEW, password_again=NEW)
    assert answer.headers["location"] == "/users?flash=password-set"
    assert (await other.get("/")).status_code == 303
    assert await may_sign_in(pages, "viewer", NEW)
    assert (await post(client, "/users/admin/password", password=NEW, password_again=NEW)).status_code == 422
    assert await records(pages, AuditAction.USER_PASSWORD_CHANGED) == [("admin", "viewer", "{}")]


async def test_removed_user_is_gone(pages: Any):
    other = await pages.signed_in_client(Role.OPERATOR)
    client = await pages.signed_in_client(Role.ADMIN)
    assert (await post(client, "/users/operator/remove")).headers["location"] == "/users?flash=user-removed"
    assert (await other.get("/")).status_code == 303
    assert await records(pages, AuditAction.USER_REMOVED) == [("admin", "operator", "{}")]


async def test_last_admin_stays(pages: Any):
    client = await pages.signed_in_client(Role.ADMIN)
    for path, fields in (("/users/admin/role", {"role": "viewer"}), ("/users/admin/remove", {})):
        answer = await post(client, path, confirmed="yes", **fields)
        assert answer.status_code == 409
        assert "admin is the only admin" in answer.text
    assert (await pages.context.accounts.get("admin")).role is Role.ADMIN
    assert 'action="/users/admin/remove"' not in (await client.get("/users")).text


async def test_own_account_needs_tick(pages: Any):
    await pages.context.accounts.set_role("operator", Role.ADMIN, now=pages.clock.now())
    client = await pages.signed_in_client(Role.ADMIN)
    for path, fields in (("/users/admin/role", {"role": "viewer"}), ("/users/admin/remove", {})):
        answer = await post(client, path, **fields)
        assert answer.status_code == 422
        assert "only another admin can undo it" in answer.text
    answer = await post(client, "/users/admin/role", role="viewer", confirmed="yes")
    assert answer.status_code == 303
    assert (await client.get("/users")).status_code == 303
    assert (await pages.context.accounts.get("admin")).role is Role.VIEWER


# --- sessions ------------------------------------------------------------------------------------------------------------
async def test_ended_session_does_not_work_at_once(pages: Any):
    other = await pages.signed_in_client(Role.OPERATOR)
    client = await pages.signed_in_client(Role.ADMIN)
    html = (await client.get("/users")).text
    mine, theirs = sessions_on(html)
    assert mine != theirs
    assert "127.0.0.1" in html
    answer = await post(client, f"/sessions/{theirs}/end")
    assert answer.headers["location"] == "/users?flash=session-ended"
    assert (await other.get("/")).status_code == 303
    assert (await client.get("/users")).status_code == 200
    assert await records(pages, AuditAction.SESSION_ENDED) == [("admin", "operator", "{}")]
    again = await post(client, f"/sessions/{theirs}/end")
    assert again.headers["location"] == "/users?flash=nothing-changed"


async def test_ended_session_is_not_revived_by_its_requests(pages: Any):
    """A request that was under way when the session was ended notes when it was seen, and nothing more."""
    other = await pages.signed_in_client(Role.OPERATOR)
    sessions = other._transport.app.state.sessions
    (stale,) = await sessions.list()
    await sessions.end_other(stale.id, by="admin")
    pages.clock.advance(minutes=5)
    await sessions._note_seen(stale)
    assert (await other.get("/")).status_code == 303


async def test_last_seen_is_kept_to_the_minute(pages: Any):
    client = await pages.signed_in_client(Role.VIEWER)
    pages.clock.advance(minutes=5)
    await client.get("/")
    (listed,) = await client._transport.app.state.sessions.list()
    assert listed.seen_at == pages.clock.now()


async def test_all_sessions_of_user_are_ended(pages: Any):
    others = [await pages.signed_in_client(Role.OPERATOR) for _ in range(2)]
    client = await pages.signed_in_client(Role.ADMIN)
    answer = await post(client, "/users/operator/sessions/end")
    assert "The sessions were ended: 2." in (await client.get(answer.headers["location"])).text
    assert [(await each.get("/")).status_code for each in others] == [303, 303]
    await post(client, "/users/admin/sessions/end")
    assert (await client.get("/")).status_code == 200
    assert await records(pages, AuditAction.SESSION_ENDED) == [("admin", "operator", '{"sessions":2}')]


# --- one's own account ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", list(Role))
async def test_everybody_sees_own_account_alone(pages: Any, role: Role):
    for each in Role:
        await pages.signed_in_client(each)
    client = await pages.signed_in_client(role)
    html = (await client.get("/account")).text
    assert len(sessions_on(html, "/account/sessions")) == 2
    assert html.count("this one") == 1
    assert f"<dd>{role.value}</dd>" in html
    assert (await pages.new_client().get("/account")).status_code == 303


async def test_own_password_is_changed_with_the_old_one(pages: Any):
    other = await pages.signed_in_client(Role.VIEWER)
    client = await pages.signed_in_client(Role.VIEWER)
    pages.clock.advance(seconds=1)
    answer = await post(client, "/account/password", old_password=PASSWORD, password=NEW, password_again=NEW)
    assert answer.headers["location"] == "/account?flash=own-password-set"
    assert (await client.get("/account")).status_code == 200
    assert (await other.get("/")).status_code == 303
    assert await may_sign_in(pages, "viewer", NEW)
    assert await records(pages, AuditAction.USER_PASSWORD_CHANGED) == [("viewer", "viewer", "{}")]


async def test_guessing_the_old_password_is_throttled(pages: Any):
    client = await pages.signed_in_client(Role.VIEWER)
    fields = {"password": NEW, "password_again": NEW}
    for _ in range(3):
        answer = await post(client, "/account/password", old_password="a guess at it", **fields)
        assert answer.status_code == 422
        assert "The old password is wrong" in answer.text
    slowed = await post(client, "/account/password", old_password=PASSWORD, **fields)
    assert (slowed.status_code, slowed.headers["retry-after"]) == (429, "2")
    rejected = await records(pages, AuditAction.SIGN_IN_REJECTED)
    assert rejected == [("viewer", "viewer", '{"form":"own_password"}')] * 3
    pages.clock.advance(seconds=1.1)
    assert (await post(client, "/account/password", old_password=PASSWORD, **fields)).status_code == 303


@pytest.mark.parametrize(("password", "again"), [("short", "short"), (NEW, "differs"), ("", "")])
async def test_bad_own_password_is_told(pages: Any, password: str, again: str):
    client = await pages.signed_in_client(Role.VIEWER)
    fields = {"old_password": PASSWORD, "password": password, "password_again": again, "generate": "yes"}
    assert (await post(client, "/account/password", **fields)).status_code == 422
    assert await may_sign_in(pages, "viewer", PASSWORD)


async def test_own_session_is_ended_and_no_other(pages: Any):
    admin = await pages.signed_in_client(Role.ADMIN)
    other = await pages.signed_in_client(Role.VIEWER)
    (of_admin,) = sessions_on((await admin.get("/account")).text, "/account/sessions")
    (of_other,) = sessions_on((await other.get("/account")).text, "/account/sessions")
    client = await pages.signed_in_client(Role.VIEWER)
    assert (await post(client, f"/account/sessions/{of_admin}/end")).status_code == 404
    assert (await admin.get("/")).status_code == 200
    assert (await post(client, f"/account/sessions/{of_other}/end")).status_code == 303
    assert (await other.get("/")).status_code == 303
    assert await records(pages, AuditAction.SESSION_ENDED) == [("viewer", "viewer", "{}")]


async def test_all_other_own_sessions_are_ended(pages: Any):
    other = await pages.signed_in_client(Role.VIEWER)
    client = await pages.signed_in_client(Role.VIEWER)
    await post(client, "/account/sessions/end")
    assert (await other.get("/")).status_code == 303
    assert (await client.get("/")).status_code == 200
    assert await records(pages, AuditAction.SESSION_ENDED) == [("viewer", "viewer", '{"sessions":1}')]


# --- a password that somebody else chose ---------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["added", "reset"])
async def test_password_of_somebody_else_is_changed_before_all_else(pages: Any, how: str):
    admin = await pages.signed_in_client(Role.ADMIN)
    if how == "added":
        fields = {"name": "anna", "role": "viewer", "generate": "yes"}
        given = re.search(r"<code>([^<]+)</code>", (await post(admin, "/users", **fields)).text)
    else:
        await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now())
        given = re.search(r"<code>([^<]+)</code>", (await post(admin, "/users/anna/password", generate="yes")).text)
    assert given is not None
    anna = pages.new_client()
    await anna.post("/sign-in", data={"name": "anna", "password": given[1]})
    for path in ("/", "/orders", "/orders/R1", "/live"):
        answer = await anna.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/account"), path
    page = (await anna.get("/account")).text
    assert "Choose your own password" in page
    assert "Where you are signed in" not in page
    assert "<title>Choose your own password" in page
    assert 'id="live"' not in page, "nothing else answers, so nothing else is asked"
    assert 'action="/sign-out"' in page
    assert "has to choose a password" in (await admin.get("/users")).text

    same = await post(anna, "/account/password", old_password=given[1], password=given[1], password_again=given[1])
    assert (same.status_code, "The new password is the old one" in same.text) == (422, True)
    chosen = await post(anna, "/account/password", old_password=given[1], password=NEW, password_again=NEW)
    assert chosen.headers["location"] == "/?flash=own-password-set"
    assert (await anna.get("/orders")).status_code == 200
    assert "has to choose a password" not in (await admin.get("/users")).text
    assert ("anna", "anna", "{}") in await records(pages, AuditAction.USER_PASSWORD_CHANGED)


async def test_sign_out_is_open_before_the_password_is_chosen(pages: Any):
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now(), must_change_password=True)
    anna = pages.new_client()
    await anna.post("/sign-in", data={"name": "anna", "password": PASSWORD})
    assert (await post(anna, "/sign-out")).headers["location"] == "/sign-in"


async def test_page_that_only_shows_asks_for_no_password(pages: Any):
    """Where nobody may act, nobody could choose one either."""
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now(), must_change_password=True)
    pages.context = replace(pages.context, settings=pages.context.settings.model_copy(update={"read_only": True}))
    anna = pages.new_client()
    await anna.post("/sign-in", data={"name": "anna", "password": PASSWORD})
    assert (await anna.get("/orders")).status_code == 200
