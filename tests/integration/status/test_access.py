"""Who may do what: every address of the page with its method, for nobody, for each role, and with the right to reveal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from lab_agent.accounts import Role
from lab_agent.status.app import PAGE_MODULES
from lab_agent.status.forms import read_form, verify_csrf_token
from tests.integration.status.conftest import GOOD, form_token

OPEN, VIEWER, OPERATOR, ADMIN, REVEAL = "open", "viewer", "operator", "admin", "reveal"
ACCESS = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): OPEN,
    ("GET", "/sign-in"): OPEN,
    ("POST", "/sign-in"): OPEN,
    ("POST", "/preferences"): OPEN,
    ("POST", "/sign-out"): VIEWER,
    ("GET", "/"): VIEWER,
    ("GET", "/live"): VIEWER,
    ("GET", "/keys"): VIEWER,
    ("GET", "/orders"): VIEWER,
    ("GET", "/orders.csv"): VIEWER,
    ("GET", "/orders/patient"): REVEAL,
    ("POST", "/orders/patient"): REVEAL,
    ("POST", "/orders/selected"): OPERATOR,
    ("POST", "/orders/selected/retry"): OPERATOR,
    ("GET", "/orders/{key}"): VIEWER,
    ("GET", "/orders/{key}/judgement"): VIEWER,
    ("GET", "/orders/{key}/raw"): OPERATOR,
    ("GET", "/orders/{key}/results"): VIEWER,
    ("POST", "/orders/{key}/patient"): REVEAL,
    ("POST", "/orders/{key}/retry"): OPERATOR,
    ("POST", "/orders/{key}/release"): OPERATOR,
    ("POST", "/orders/{key}/reject"): OPERATOR,
    ("POST", "/orders/{key}/lines/{line}/accept"): OPERATOR,
    ("POST", "/orders/{key}/lines/{line}/reject"): OPERATOR,
    ("GET", "/alerts"): VIEWER,
    ("GET", "/conditions"): VIEWER,
    ("GET", "/waiting"): VIEWER,
    ("GET", "/waiting/members"): VIEWER,
    ("GET", "/waiting/all/{action}"): OPERATOR,
    ("POST", "/waiting/all/{action}"): OPERATOR,
    ("GET", "/failures"): VIEWER,
    ("GET", "/failures/members"): VIEWER,
    ("GET", "/results"): VIEWER,
    ("GET", "/results/mended"): OPERATOR,
    ("POST", "/results/mended"): OPERATOR,
    ("GET", "/results/{key}"): VIEWER,
    ("GET", "/results/{key}/documents/{number}"): REVEAL,
    ("GET", "/results/{key}/match"): OPERATOR,
    ("POST", "/results/{key}/match"): OPERATOR,
    ("POST", "/results/{key}/release"): OPERATOR,
    ("POST", "/results/{key}/dismiss"): OPERATOR,
    ("POST", "/jobs/{job}/retry"): OPERATOR,
    ("POST", "/jobs/{job}/dismiss"): OPERATOR,
    ("POST", "/jobs/{job}/done"): OPERATOR,
    ("POST", "/rules/{rule}/release"): OPERATOR,
    ("GET", "/refused"): VIEWER,
    ("POST", "/refused/dismiss"): OPERATOR,
    ("GET", "/refused/{key}"): VIEWER,
    ("POST", "/refused/{key}/replay"): OPERATOR,
    ("POST", "/refused/{key}/dismiss"): OPERATOR,
    ("POST", "/refused/{key}/raw"): OPERATOR,
    ("GET", "/turnaround"): VIEWER,
    ("POST", "/turnaround"): OPERATOR,
    ("POST", "/turnaround/lift"): OPERATOR,
    ("GET", "/catalogue"): VIEWER,
    ("GET", "/catalogue/tests/{code}"): VIEWER,
    ("GET", "/catalogue/diff"): VIEWER,
    ("GET", "/connection"): VIEWER,
    ("POST", "/connection/test"): OPERATOR,
    ("POST", "/connection/refresh"): ADMIN,
    ("POST", "/connection/forget"): ADMIN,
    ("GET", "/adapters"): VIEWER,
    ("POST", "/adapters/{name}/test"): OPERATOR,
    ("POST", "/adapters/{name}/pause"): ADMIN,
    ("POST", "/adapters/{name}/resume"): ADMIN,
    ("GET", "/rules"): VIEWER,
    ("GET", "/rules/{rule}"): VIEWER,
    ("GET", "/sign-in/oidc"): OPEN,
    ("GET", "/sign-in/oidc/return"): OPEN,
    ("GET", "/audit"): ADMIN,
    ("GET", "/audit/{number}"): ADMIN,
    ("GET", "/audit.csv"): ADMIN,
    ("GET", "/users"): ADMIN,
    ("POST", "/users"): ADMIN,
    ("POST", "/users/{name}/role"): ADMIN,
    ("POST", "/users/{name}/reveal"): ADMIN,
    ("POST", "/users/{name}/password"): ADMIN,
    ("POST", "/users/{name}/remove"): ADMIN,
    ("POST", "/users/{name}/sessions/end"): ADMIN,
    ("POST", "/sessions/{session}/end"): ADMIN,
    ("GET", "/account"): VIEWER,
    ("POST", "/account/password"): VIEWER,
    ("POST", "/account/sessions/{session}/end"): VIEWER,
    ("POST", "/account/sessions/end"): VIEWER,
}
"""By method and address: who may. A new address must be added here, or the first test fails."""
VALUES = {
    "key": GOOD,
    "line": "L00",
    "job": "1",
    "rule": "line.specimen",
    "action": "retry",
    "number": "1",
    "code": "001.001",
    "name": "folder",
    "session": "0" * 64,
}
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
    for (method, path), needed in ACCESS.items():
        if path == "/live" and person is not None:
            continue  # it does not end; the browser tests read it
        client = seeded.new_client() if person is None else await seeded.signed_in_client(Role(person))
        token = form_token((await client.get("/")).text) if person else ""
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
        await client.aclose()


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
        if needed in {OPERATOR, ADMIN} and not (method == "GET" and needed == ADMIN and person == ADMIN):
            assert await visit(client, method, path, form_token(overview)) == 403, path


def test_every_form_verifies_the_csrf_token():
    """Only signing in, and the choice of a language or theme, have no session yet."""

    def calls(dependant: Dependant) -> set[Any]:
        return {dependant.call}.union(*(calls(each) for each in dependant.dependencies))

    actions = {path: calls(route.dependant) for method, path, route in iterate_routes() if method != "GET"}
    assert {path for path, used in actions.items() if verify_csrf_token not in used} == {"/sign-in", "/preferences"}
    assert [path for path, used in actions.items() if read_form not in used] == []


async def test_form_without_its_token_does_nothing(seeded: Any):
    client = await seeded.signed_in_client(Role.ADMIN)
    for method, path in ACCESS:
        if method == "POST" and path not in {"/sign-in", "/preferences"}:
            assert await visit(client, method, path, "forged") in {403, 404}, path
