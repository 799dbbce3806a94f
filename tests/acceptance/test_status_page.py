"""The status page in a real browser over real programs: agent, API, exchange service and laboratory system.

They start once for all tests here. Every patient is a canary, and the last test reads all that the others left.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import time
from base64 import b64encode
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from lab_agent.operations.accounts import Accounts, Role
from lab_agent.store.crypto import Cipher, Passwords
from lab_agent.store.unit_of_work import Store
from tests.harness import canaries, refused
from tests.harness.browser import needs_chromium, running_browser, sign_in, sign_out, visit, with_and_without_scripts
from tests.harness.canaries import BORN, FAMILY, GIVEN, Crawl, find_canaries, page_routes, route_of
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database
from tests.harness.documents import make_pdf
from tests.harness.programs import free_port
from tests.harness.proof import Figures
from tests.incidents.laboratory import Laboratory, replace_item, wait_for

PASSWORD = "a long password for tests"
OPERATOR, REVEALER = Role.OPERATOR.value, "revealer"
TEST = "001.001"
SOON, TRIES = 2.0, 10
"""Seconds within which an open page tells of something new."""
WITHOUT_TIMER = "const every = setInterval; window.setInterval = (what, ms) => (ms === 10000 ? 0 : every(what, ms));"
SENDER = {"/refused/{key}": {"Kanarfile"}}
"""What a message was sent as is shown to operators alone, and noted."""
DOCUMENT = {"/results/{key}/documents/{number}": {FAMILY}}
NOTED: Mapping[str | None, Mapping[str, set[str]]] = {
    Role.OPERATOR.value: SENDER,
    Role.ADMIN.value: SENDER,
    REVEALER: SENDER | DOCUMENT,
}
"""Who may see which canary in the answer to a GET; each look is in the audit."""
T = TypeVar("T")
pytestmark = [pytest.mark.proof, needs_chromium]


@dataclass
class Installation:
    """The programs, and how often each kind of name was given."""

    lab: Laboratory
    analyser_port: int
    analyser_map: Path
    names: Iterator[int]

    def order(self) -> dict[str, Any]:
        """A canary's order, as the laboratory system got it."""
        return self.lab.place_and_hand_over(change=canaries.name_patient_everywhere, patient=canaries.canary_patient)

    def name(self, kind: str) -> str:
        return f"{kind}-{next(self.names)}"

    @contextmanager
    def signed_in(self, name: str | None) -> Iterator[httpx.Client]:
        """Somebody without a browser; nobody has not signed in."""
        with httpx.Client(base_url=self.lab.workspace.status_url, trust_env=False, timeout=DEADLINE) as client:
            if name is not None:
                assert client.post("/sign-in", data={"name": name, "password": PASSWORD}).status_code == 303
            yield client

    def reports(self) -> dict[str, dict[str, Any]]:
        """The reports that are at the clinic, by the laboratory's own name of each."""
        found = self.search("DiagnosticReport")
        return {each["identifier"][0]["value"].rsplit(".", 1)[-1]: each for each in found}

    def search(self, kind: str) -> list[dict[str, Any]]:
        with self.lab.clinic() as clinic:
            address: str | None = f"fhir/{kind}"
            found = []
            while address:
                page = clinic.get(address).raise_for_status().json()
                found += [entry["resource"] for entry in page.get("entry", ())]
                address = next((link["url"] for link in page.get("link", ()) if link["relation"] == "next"), None)
        return found

    def wait_for_reports(self, names: set[str]) -> None:
        wait_for(lambda: names <= self.reports().keys(), f"{len(names)} reports at the clinic, such as {min(names)}")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The programs, each answering; accounts of each role, and one of an operator who may reveal patients."""
    database = tmp_path_factory.mktemp("page") / "lab.db"
    create_database(database)
    port = free_port()
    lab = Laboratory.create(database, {"logging": {"level": "debug", "format": "json"}})
    try:
        analyser_map = lab.workspace.folder / "config" / "analyser.toml"
        analyser_map.write_text("")
        lab.settings.write_text(f"{lab.settings.read_text()}\n{_analyser_table(port, analyser_map)}")
        asyncio.run(_add_users(lab))
        lab.start("service", "api", "agent")
        yield Installation(lab, port, analyser_map, itertools.count(1))
    finally:
        lab.close()


def _analyser_table(port: int, mapping: Path) -> str:
    """A second laboratory system, which sends results as HL7 v2."""
    return (
        '[lis.analyser]\nadapter = "hl7v2"\norders = { role = "server", port = 0 }\n'
        f'results = {{ role = "server", port = {port} }}\nfolder = "analyser"\nduplicates = "msh10"\nmapping = "{mapping}"\n'
    )


async def _add_users(lab: Laboratory) -> None:
    store = Store(f"sqlite:///{lab.database}", Cipher(str(lab.workspace.agent_config["store"]["encryption_keys"][0])))
    accounts, now = Accounts(store, Passwords()), datetime.now(UTC)
    for name, role in ((each.value, each) for each in Role):
        await accounts.add(name, PASSWORD, role, now=now)
    await accounts.add(REVEALER, PASSWORD, Role.OPERATOR, now=now)
    await accounts.set_reveal(REVEALER, may_reveal=True, now=now)
    await store.close()


@pytest.fixture(autouse=True)
def counted(figures: Figures) -> None:
    figures.add(flows_in_a_browser=1)


@pytest.fixture(scope="module")
def browser(installation: Installation) -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@with_and_without_scripts
def test_order_is_found_and_its_patient_revealed(installation: Installation, browser: Browser, scripts: bool) -> None:
    order = installation.order()
    key, barcode = order["key"], barcode_of(order)
    with visit(browser, installation.lab.workspace.status_url, java_script_enabled=scripts) as visited:
        tab = visited.tab
        sign_in(tab, REVEALER, PASSWORD, "/orders")
        tab.get_by_role("searchbox").fill(barcode[2:])
        tab.get_by_role("button", name="Search", exact=True).click()
        tab.get_by_role("link", name=key).click()
        assert order["requisition"]["value"] in main_text(tab)

        for name, born in ((f"{GIVEN} {FAMILY}", ""), ("", BORN)):
            tab.goto("/orders/patient")
            tab.get_by_label("Name").fill(name)
            tab.get_by_label("Birth date").fill(born)
            tab.get_by_role("button", name="Search", exact=True).click()
            expect(tab.get_by_role("link", name=key)).to_be_visible()
            assert find_canaries(tab.url + tab.title()) == []

        tab.goto(f"/orders/{key}")
        tab.get_by_role("button", name="Show").click()
        assert [each for each in canaries.SHOWN if each not in main_text(tab)] == []
        sign_out(tab)
        sign_in(tab, Role.ADMIN.value, PASSWORD, "/audit")
        looks = tab.get_by_role("row").filter(has_text=REVEALER)
        expect(looks.filter(has_text=key).first).to_be_visible()
        assert find_canaries(tab.content()) == []


@with_and_without_scripts
def test_forty_failed_uploads_arrive_by_one_action(installation: Installation, browser: Browser, scripts: bool) -> None:
    lab, order = installation.lab, installation.order()
    names = {installation.name("upload") for _ in range(40)}
    lab.fault({"kind": "status", "status": 422, "route": "POST /fhir/DiagnosticReport"})
    try:
        for name in names:
            lab.write_result(name, order=order["key"], lines=[order["lines"][0]["key"]])
        with visit(browser, lab.workspace.status_url, java_script_enabled=scripts) as visited:
            tab = visited.tab
            sign_in(tab, OPERATOR, PASSWORD, "/waiting")
            wait_for(lambda: tab.goto("/waiting") and tab.get_by_role("link", name="Retry all 40").is_visible(), "40 failures")
            assert not names & installation.reports().keys()
            lab.fault()
            tab.get_by_role("link", name="Retry all 40").click()
            tab.get_by_role("heading", name="Retry all: 40 of 40?").wait_for()
            tab.get_by_role("button", name="Retry all").click()
            tab.get_by_role("status").filter(has_text="40 are due now").wait_for()
            installation.wait_for_reports(names)
            tab.goto("/waiting")
            expect(tab.get_by_role("link", name="Retry all 40")).to_have_count(0)
    finally:
        lab.fault()


@with_and_without_scripts
def test_results_of_the_match_desk_reach_the_clinic(installation: Installation, browser: Browser, scripts: bool) -> None:
    """One whose code is in no table is released once it is; one that names no order is matched to it."""
    lab, order = installation.lab, installation.order()
    unmapped, lost = installation.name("unmapped"), installation.name("lost")
    line, code = order["lines"][0]["key"], f"LOCAL{next(installation.names)}"
    value = {"code": {"code": code, "display": "Ferritin"}, "value_quantity": {"value": "41.0", "unit": "ug/L"}}
    lab.write_result(unmapped, order=order["key"], lines=[line], observations=[value])
    lab.write_result(lost, barcode="9999999999")
    with visit(browser, lab.workspace.status_url, java_script_enabled=scripts) as visited:
        tab = visited.tab
        sign_in(tab, OPERATOR, PASSWORD, "/results")
        for name in (unmapped, lost):
            wait_for(lambda name=name: tab.goto("/results") and tab.get_by_role("link", name=name).is_visible(), name)
        with (lab.workspace.folder / "config" / "mappings" / "codes.csv").open("a", encoding="utf-8") as table:
            table.write(f"{code},2276-4,Ferritin,\n")
        tab.get_by_role("link", name="Release unmapped results").click()
        tab.get_by_role("button", name="Release 1 result").click()
        tab.get_by_role("status").filter(has_text="was released").wait_for()

        match(tab, lost, order)
        installation.wait_for_reports({unmapped, lost})


@with_and_without_scripts
def test_refused_message_is_replayed_with_mended_map(installation: Installation, browser: Browser, scripts: bool) -> None:
    """A status that the map lacks: the page says the line that mends it, and after a reload the result goes to the clinic."""
    lab, order = installation.lab, installation.order()
    status = "QJ"[scripts]
    name, line = installation.name("analyser"), order["lines"][0]["key"]
    message = canaries.hl7_result(name, order["key"], line, status)
    assert run_apart(refused.send(installation.analyser_port, message)) == ["AE"]
    with visit(browser, lab.workspace.status_url, java_script_enabled=scripts) as visited:
        tab = visited.tab
        sign_in(tab, OPERATOR, PASSWORD, "/refused?source=analyser")
        tab.locator("tbody th a").last.click()  # the longest waiting is first
        expect(tab.get_by_text(f"{status} = ?")).to_be_visible()
        table = installation.analyser_map.read_text() or "[tables.report_status]\n"
        installation.analyser_map.write_text(f'{table}{status} = "final"\n')
        reloads = len(lab.logged("adapter_reloaded"))
        lab.reload()
        wait_for(lambda: len(lab.logged("adapter_reloaded")) > reloads, "the reload")
        tab.reload()
        tab.get_by_role("button", name="Replay").click()
        tab.get_by_role("status").filter(has_text="Everything in the message was taken in").wait_for()
        tab.goto("/results")
        before = installation.reports().keys()
        match(tab, f"{line}/GLU", order)  # for the line is at the other laboratory system
        wait_for(lambda: installation.reports().keys() - before, "the result at the clinic")


@with_and_without_scripts
def test_stopped_test_is_in_the_answer_of_eta(installation: Installation, browser: Browser, scripts: bool) -> None:
    lab = installation.lab

    def status() -> str:
        with lab.clinic() as clinic:
            answer = clinic.get("eta", params={"contract": "C-100"}).raise_for_status().json()
        return str({each["id"]: each["status"] for each in answer}[TEST])

    assert status() == "available"
    with visit(browser, lab.workspace.status_url, java_script_enabled=scripts) as visited:
        tab = visited.tab
        sign_in(tab, OPERATOR, PASSWORD, f"/catalogue/tests/{TEST}")
        tab.get_by_role("link", name="Stop or delay").click()
        tab.get_by_label("Until").fill("3d")
        tab.get_by_role("button", name="Announce").click()
        tab.get_by_role("status").filter(has_text="The test is stopped").wait_for()
        wait_for(lambda: status() == "stopped", "the stopped test in eta")
        tab.get_by_role("button", name="Lift").click()
        tab.get_by_role("status").filter(has_text="available as usual").wait_for()
        wait_for(lambda: status() == "available", "the test in eta, as usual")


def test_page_is_live_and_says_that_it_lost_touch(installation: Installation, browser: Browser) -> None:
    """A new order comes to an open page by news alone, without a reload; an agent that was killed leaves no green page.

    Each takes two seconds at most, the best of three: the machine of a test may be busy.
    """
    lab = installation.lab
    context = browser.new_context(base_url=lab.workspace.status_url)
    tab = context.new_page()
    tab.add_init_script(WITHOUT_TIMER)
    sign_in(tab, OPERATOR, PASSWORD, "/orders")
    tab.evaluate("window.untouched = true")
    live, gone = tab.locator("#live"), tab.locator("#agent-gone")

    def tell_of_order() -> float:
        expect(live).to_have_class(re.compile("on"))
        rows = tab.locator("tbody tr")
        number, begun = rows.count(), time.monotonic()
        lab.place_order(canaries.name_patient_everywhere, patient=canaries.canary_patient)
        expect(rows).to_have_count(number + 1, timeout=DEADLINE * 1000)
        return time.monotonic() - begun

    def tell_of_death() -> float:
        begun = time.monotonic()
        lab.stop("agent", signal.SIGKILL)
        expect(gone).to_be_visible(timeout=DEADLINE * 1000)
        expect(live).to_have_class(re.compile("lost"))
        took = time.monotonic() - begun
        lab.start_agent()
        expect(gone).to_be_hidden(timeout=DEADLINE * 1000)
        return took

    for tell in (tell_of_order, tell_of_death):
        took: list[float] = []
        while len(took) < TRIES and min(took, default=SOON) >= SOON:
            took.append(tell())
        assert min(took) < SOON, f"{tell.__name__}: {took}"
    assert tab.evaluate("window.untouched") is True
    context.close()


def test_canaries_are_nowhere_but_on_the_noted_reveal(installation: Installation) -> None:
    """Every address as each role, the stream of news, the metrics, the exports, the logs of all programs, and the database."""
    lab = installation.lab
    order = installation.order()
    with ThreadPoolExecutor(1) as pool:
        news = pool.submit(read_news, installation)
        leave_traces(installation, order)
        assert find_canaries(news.result(DEADLINE)) == []

    own = [f"/orders?search={barcode_of(order)}", f"/orders/{order['key']}", f"/orders/{order['key']}/results"]
    reached: set[str] = set()
    for name in (None, *(each.value for each in Role), REVEALER):
        with installation.signed_in(name) as client:
            crawl = Crawl(client)
            crawl.run((*own, *(each for each in page_routes() if "{" not in each)))
            noted = NOTED.get(name, {})
            assert crawl.unexpected(noted) == {}, name
            assert {route_of(each) for each in crawl.found} == set(noted), f"what is noted is shown to {name}"
            reached |= crawl.routes()
            if name != REVEALER:
                answer = client.post(f"/orders/{order['key']}/patient", data={"csrf_token": crawl.token})
                assert answer.status_code in {303, 403}
                assert find_canaries(answer.text) == []
    assert set(page_routes()) - reached == {"/sign-in/oidc", "/sign-in/oidc/return"}, "the others were all read"

    for path in ("metrics", "healthz", "readyz"):
        assert find_canaries(httpx.get(f"{lab.workspace.api_url}/{path}", trust_env=False, timeout=DEADLINE).text) == []
    written = [*lab.workspace.logs.iterdir(), *lab.database.parent.glob(f"{lab.database.name}*")]
    assert {"agent.log", "api.log", "service.log", lab.database.name} <= {each.name for each in written}
    assert {each.name: said for each in written if (said := find_canaries(each.read_bytes().decode(errors="replace")))} == {}


def leave_traces(installation: Installation, order: dict[str, Any]) -> None:
    """What may name a patient comes in by every way: results that wait, messages that are refused, a line that is rejected."""
    lab, key, line = installation.lab, order["key"], order["lines"][0]["key"]
    name = installation.name("canary")
    other = {"birth_date": "1907-08", "gender": "male", "identifiers": [{"system": "urn:policy", "value": "KANARPOLICY7741-X"}]}
    document = {"content": b64encode(make_pdf(FAMILY)).decode(), "content_type": "application/pdf"}
    lab.write_result(name, order=key, lines=[line], patient=other, documents=[document])
    lab.write_result_file(
        f"Kanarfile-{name}.json", json.dumps({"report_id": 7, "patient": {"family": FAMILY, "birth_date": BORN}})
    )
    unknown_status = canaries.hl7_result(f"{name}-status", key, line, "W")
    bad_date = canaries.hl7_result(f"{name}-date", key, line, "F").replace(b"19070813", b"13.08.1907")
    run_apart(refused.send(installation.analyser_port, unknown_status, bad_date))
    lab.place_order(replace_item, patient=canaries.canary_patient)
    with installation.signed_in(OPERATOR) as client:
        wait_for(lambda: name in client.get("/results").text, "the result that waits")
        for source in ("folder", "analyser"):
            wait_for(lambda source=source: "/refused/" in client.get(f"/refused?source={source}").text, f"a refusal of {source}")


def read_news(installation: Installation) -> str:
    """What the stream of news says until it names something that has changed."""
    said = ""
    with installation.signed_in(Role.VIEWER.value) as client, client.stream("GET", "/live") as answer:
        for line in answer.iter_lines():
            said += f"{line}\n"
            if line.startswith("data:"):
                break
    return f"{answer.headers}\n{said}"


def match(tab: Page, name: str, order: dict[str, Any]) -> None:
    """Match a result of the match desk to the first line of an order, by hand."""
    tab.get_by_role("link", name=name).click()
    tab.get_by_role("link", name="Find the order").click()
    tab.get_by_label("Order key, requisition").fill(order["requisition"]["value"])
    tab.get_by_role("button", name="Search").click()
    tab.get_by_label(order["lines"][0]["key"]).check()
    tab.get_by_label("How do you know?").fill("read on the paper form")
    tab.get_by_role("button", name="Match to this order").click()
    tab.get_by_role("status").filter(has_text="The result is matched").wait_for()


def main_text(tab: Page) -> str:
    return tab.get_by_role("main").inner_text()


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run something asynchronous in a thread of its own: the browser's event loop has this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def barcode_of(order: dict[str, Any]) -> str:
    return str(order["specimens"][0]["containers"][0]["barcode"])
