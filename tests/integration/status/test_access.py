"""Who may do what: every address of the page with its method, for nobody, for each role, and with the right to reveal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.routing import APIRoute

from lab_agent.operations.accounts import Role
from lab_agent.status.app import PAGE_MODULES
from tests.integration.status.conftest import GOOD, form_token

OPEN, VIEWER, OPERATOR, ADMIN, REVEAL = "open", "viewer", "operator", "admin", "reveal"
ADMITTED = {
    (OPEN, "GET"): "/healthz /readyz /metrics /sign-in /sign-in/oidc /sign-in/oidc/return",
    (OPEN, "POST"): "/sign-in /preferences",
    (VIEWER, "GET"): """
        / /live /keys /orders /orders.csv /orders/{key} /orders/{key}/judgement /orders/{key}/results /alerts
        /conditions /waiting /waiting/members /failures /failures/members /results /results/{key} /refused
        /refused/{key} /turnaround /catalogue /catalogue/tests/{code} /catalogue/diff /connection /adapters /rules
        /rules/{rule} /account
    """,
    (VIEWER, "POST"): "/sign-out /account/password /account/sessions/{session}/end /account/sessions/end",
    (OPERATOR, "GET"): "/orders/{key}/raw /waiting/all/{action} /results/mended /results/{key}/match",
    (OPERATOR, "POST"): """
        /orders/selected /orders/selected/retry /orders/{key}/retry /orders/{key}/release /orders/{key}/reject
        /orders/{key}/lines/{line}/accept /orders/{key}/lines/{line}/reject /waiting/all/{action} /results/mended
        /results/{key}/match /results/{key}/release /results/{key}/dismiss /jobs/{job}/retry /jobs/{job}/dismiss
        /jobs/{job}/done /rules/{rule}/release /refused/dismiss /refused/{key}/replay /refused/{key}/dismiss
        /refused/{key}/raw /turnaround /turnaround/lift /connection/test /adapters/{name}/test
    """,
    (ADMIN, "GET"): "/audit /audit/{number} /audit.csv /users",
    (ADMIN, "POST"): """
        /connection/refresh /connection/forget /adapters/{name}/pause /adapters/{name}/resume /users /users/{name}/role
        /users/{name}/reveal /users/{name}/password /users/{name}/remove /users/{name}/sessions/end
        /sessions/{session}/end
    """,
    (REVEAL, "GET"): "/orders/patient /results/{key}/documents/{number}",
    (REVEAL, "POST"): "/orders/patient /orders/{key}/patient",
}
"""Addresses by who may and by method. A new one must be added here, or the first test fails."""
ACCESS = {(method, path): who for (who, method), paths in ADMITTED.items() for path in paths.split()}
VALUES = {"key": GOOD, "line": "L00", "job": "1", "rule": "line.specimen", "action": "retry", "number": "1"}
VALUES |= {"code": "001.001", "name": "folder", "session": "0" * 64}
RANKS = [VIEWER, OPERATOR, ADMIN]
PEOPLE = (None, *RANKS)


def iterate_routes() -> Iterator[tuple[str, str, APIRoute]]:
    for route in (route for module in PAGE_MODULES for route in module.router.routes):
        if isinstance(route, APIRoute):
            yield from ((method, route.path, route) for method in route.methods - {"HEAD"})


def fill(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: VALUES[found[1]], path)


async def visit(client: Any, method: str, path: str, token: str = "") -> int:
    if method == "GET":
        return int((await client.get(fill(path))).status_code)
    return int((await client.post(fill(path), data={"csrf_token": token, "note": "a look"})).status_code)


def test_every_address_is_in_the_table():
    assert {(method, path) for method, path, _ in iterate_routes()} == set(ACCESS)


@pytest.mark.parametrize("person", PEOPLE)
async def test_every_address_admits_whom_it_should(seeded: Any, person: str | None):
    """Whoever may not is sent to sign in, or gets a 403; whoever may gets any other answer."""
    client = seeded.new_client() if person is None else await seeded.signed_in_client(Role(person))
    token = form_token((await client.get("/")).text) if person else ""
    for (method, path), needed in sorted(ACCESS.items(), key=lambda each: each[0][1] == "/sign-out"):
        if path == "/live" and person is not None:
            continue  # it does not end; the browser tests read it
        status = await visit(client, method, path, token)
        where = f"{person} {method} {path}: {status}"
        if needed == OPEN:
            assert status not in {303, 403} or path == "/preferences", where
        elif person is None:
            assert status == 303, where
        elif needed == REVEAL or RANKS.index(person) < RANKS.index(needed):
            assert status == 403, where
        else:
            assert status != 403, where
    assert person is None or (await client.get("/")).status_code == 303, "signed out, and not before"


async def test_right_to_reveal_is_of_no_role(seeded: Any):
    await seeded.context.accounts.set_reveal("viewer", may_reveal=True, now=seeded.clock.now())
    client = await seeded.signed_in_client(Role.VIEWER)
    token = form_token((await client.get("/")).text)
    for (method, path), needed in ACCESS.items():
        if needed == REVEAL:
            assert await visit(client, method, path, token) != 403, path


@pytest.mark.parametrize("person", RANKS)
async def test_nobody_acts_on_a_page_that_only_shows(seeded: Any, person: str):
    settings = seeded.context.settings.model_copy(update={"read_only": True})
    seeded.context = replace(seeded.context, settings=settings)
    client = await seeded.signed_in_client(Role(person))
    overview = (await client.get("/")).text
    assert "This page only shows" in overview
    for (method, path), needed in ACCESS.items():
        acts = needed in {OPERATOR, ADMIN} and not (method == "GET" and needed == ADMIN and person == ADMIN)
        if acts or (method == "POST" and path.startswith("/account/")):
            assert await visit(client, method, path, form_token(overview)) == 403, path


async def test_form_without_its_token_does_nothing(seeded: Any):
    """Nor one with the token of another session, nor one that another site sends."""
    client, other = [await seeded.signed_in_client(Role.ADMIN) for _ in range(2)]
    good, foreign = [form_token((await each.get("/")).text) for each in (client, other)]
    before = [await seeded.context.queries.jobs(), (await seeded.context.queries.alerts()).items]
    elsewhere = ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"})
    forged = [*((token, {}) for token in ("", "forged", "é", foreign)), *((good, headers) for headers in elsewhere)]
    for method, path in ACCESS:
        if method == "POST" and path not in {"/sign-in", "/preferences"}:
            for token, headers in forged:
                answer = await client.post(fill(path), data={"csrf_token": token, "note": "a look"}, headers=headers)
                assert answer.status_code in {403, 404}, (path, token, headers)
    assert [await seeded.context.queries.jobs(), (await seeded.context.queries.alerts()).items] == before
    assert await visit(client, "POST", "/rules/{rule}/release", good) == 303
