"""`lab-agent check` against the exchange service; `lab-agent login` as a person does it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from lab_agent.shared.ids import order_key
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.harness.programs import free_port
from tests.integration.cli.conftest import edit, make_order, said

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
SANDBOX = """
[[counterparties]]
guid = "guid-clinic"
name = "clinic"
kind = "partner"

[[counterparties]]
guid = "our-guid"
name = "laboratory"
kind = "laboratory"
login = "login"
password = "hunter2"
client_id = "client"
client_secret = "hunter4"
redirect_uris = ["{callback}"]

[[contracts]]
code = "C-100"
partner = "guid-clinic"
laboratory = "our-guid"
"""


def line_with(process: Any, pattern: str) -> str:
    """The next part of a program's output that matches; a test has a limit of its own."""
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match.group(0)
    pytest.fail(f"it ended without {pattern}")


@pytest.fixture
def callback() -> str:
    return f"http://127.0.0.1:{free_port()}/callback"


@pytest.fixture
def service(tmp_path: Path, callback: str) -> Iterator[str]:
    """The address of the service in a box, which knows contract C-100 only."""
    config = tmp_path / "sandbox-service.toml"
    config.write_text(SANDBOX.format(callback=callback), encoding="utf-8")
    words = ("run", "--config", str(config), "--port", "0")
    with (tmp_path / "service.log").open("w") as log:
        process = forked_programs.start("lab_sandbox.cli", *words, stdout=subprocess.PIPE, stderr=log)
    try:
        yield line_with(process, r"http://\S+").rstrip("/")
    finally:
        process.terminate()
        process.wait()
        process.close()


@pytest.fixture
def at_service(lab, service):
    text = lab.config.read_text().replace("http://127.0.0.1:9/", f"{service}/").replace("http://127.0.0.1:9", service)
    lab.config.write_text(text.replace('client_id = "client"', 'client_id = "client"\nclient_secret = "hunter4"'))
    return lab


def test_unreachable_exchange_is_reported_once(cli, lab):
    done = cli("check", "--json")
    assert (done.code, said(done)["exchange"][0], said(done)["sign-in"][0]) == (1, "WRONG", "skipped")
    assert "Traceback" not in done.out + done.err


def test_check_against_exchange_tries_everything(cli, at_service):
    done = cli("check", "--json")
    found = {name: status for name, (status, *_) in said(done).items()}
    assert (found["exchange"], found["sign-in"], found["contract C-100"], found["adapter folder"]) == ("ok",) * 4
    assert (done.code, found["contract C-200"]) == (1, "WRONG"), "the service does not know it"
    (at_service.folder / "lab.db").unlink()
    assert said(cli("check", "--json"))["sign-in"][0] == "ok", "also without a database"
    edit(at_service, "hunter2", "hunter3")
    done = cli("check", "--json")
    assert (done.code, said(done)["sign-in"][0], "hunter3" in done.out + done.err) == (1, "WRONG", False)
    done = cli("login")
    assert (done.code, "needs no sign-in by a person" in done.err) == (1, True)


class ProxiedService(BaseHTTPRequestHandler):
    """A service behind a proxy, whose links name its own address inside."""

    relation = "next"

    def do_POST(self) -> None:
        self._answer({"access_token": "t"})

    def do_GET(self) -> None:
        link = {"relation": self.relation, "url": "http://internal:8080/fhir/task?page=2"}
        self._answer({"resourceType": "Bundle", "type": "searchset", "link": [link]})

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def served(lab) -> Iterator[str]:
    """The service of the settings is a `ProxiedService`; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ProxiedService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        lab.config.write_text(lab.config.read_text().replace("http://127.0.0.1:9", base))
        try:
            yield base
        finally:
            server.shutdown()


@pytest.mark.parametrize(("relation", "status"), [("next", "WRONG"), ("self", "to do")])
def test_links_to_other_origin_are_reported(cli, lab, monkeypatch, relation, status):
    """A service that knows itself by another address than ours leads us away, page after page."""
    monkeypatch.setattr(ProxiedService, "relation", relation)
    with served(lab):
        found = said(cli("check", "--json"))
    assert found["exchange"][0] == "ok"
    assert (found["service links"][0], "http://internal:8080" in found["service links"][1]) == (status, True)
    assert "exchange.base_url" in found["service links"][2]


def test_gateway_that_alters_etags_is_named(cli, lab, monkeypatch):
    contract = {"resourceType": "Contract", "id": "c1", "meta": {"versionId": "3"}}

    def answer(self):
        self._answer({"resourceType": "Bundle", "entry": [{"resource": contract}]} if "?" in self.path else contract)

    def end_headers(self):
        self.send_header("ETag", 'W/"3--gzip"')
        BaseHTTPRequestHandler.end_headers(self)

    monkeypatch.setattr(ProxiedService, "do_GET", answer)
    monkeypatch.setattr(ProxiedService, "end_headers", end_headers, raising=False)
    with served(lab):
        found = said(cli("check", "--json"))
    assert (found["service ETags"][0], '"3--gzip"' in found["service ETags"][1]) == ("to do", True)


@pytest.mark.parametrize("others", ["report", "none", "known"])
def test_report_of_another_agent_is_told_before_the_first_poll(cli, lab, monkeypatch, others):
    """A new order has a report with our identifier, and the database does not know of it, or knows the order."""
    code = {"coding": [{"system": "http://127.0.0.1/terminology/task_type", "code": "OrderProcessingTask"}]}
    task = {"resourceType": "Task", "id": "t1", "status": "requested", "code": code, "meta": {"versionId": "1"}}

    def answer(self):
        path, query = urlsplit(self.path).path.lower(), parse_qs(urlsplit(self.path).query)
        system, _, value = query.get("identifier", [""])[0].partition("|")
        report = {"resourceType": "DiagnosticReport", "id": "r1", "identifier": [{"system": system, "value": value}]}
        report["meta"] = {"versionId": "1", "lastUpdated": "2026-03-01T12:30:00+03:00"}
        rows = [task] if "status" in query else [report] if path.endswith("/diagnosticreport") and others != "none" else []
        self._answer({"resourceType": "Bundle", "type": "searchset", "entry": [{"resource": each} for each in rows]})

    monkeypatch.setattr(ProxiedService, "do_GET", answer)
    with served(lab) as base:
        if others == "known":
            lab.write(lambda uow: uow.orders.add_new([make_order(order_key(f"{base}/", "t1"), task_id="t1")]))
        found = said(cli("check", "--json"))
    assert found["exchange"][0] == "ok"
    assert ("other agents" in found) is (others == "report")
    if others == "report":
        assert (found["other agents"][0], "t1" in found["other agents"][1]) == ("WRONG", True)
        assert "last changed at 2026-03-01 09:30:00 UTC" in found["other agents"][1]


@pytest.mark.parametrize("way", ["listening", "pasted"])
def test_user_logs_in_once(cli, at_service, callback, way):
    edit(at_service, 'grant = "password"', f'grant = "authorization_code"\nredirect_uri = "{callback}"')
    assert said(cli("check", "--json"))["sign-in"][0] == "WRONG"
    command = [BIN / "lab-agent", "login", "--config", at_service.config, *(["--paste"] if way == "pasted" else [])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, cwd=at_service.folder, **pipes) as process:
        try:
            address = line_with(process, r"^http://\S+")
            line_with(process, "Waiting for the callback|The browser ends up at")
            with httpx.Client(timeout=DEADLINE) as browser:
                fields = dict(parse_qsl(urlsplit(address).query)) | {"login": "login", "password": "hunter2"}
                back = browser.post(address.partition("?")[0], data=fields).headers["location"]
                if way == "listening":
                    assert browser.get(back).status_code == 200
            rest, _ = process.communicate(back + "\n" if way == "pasted" else None, timeout=DEADLINE)
            assert process.returncode == 0, rest
            assert "Signed in" in rest
        finally:
            process.kill()
    assert said(cli("check", "--json"))["sign-in"][0] == "ok"
