"""`lab-agent check`, offline and against the service in a box; `lab-agent login` as a person does it."""

import json
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue_service.versions import pack_tables
from lab_agent.domain.catalogue_records import CatalogueVersion
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import ResourceId, order_key
from lab_agent.domain.job_records import JobKind, NewJob
from lab_agent.domain.records import LineRecord, OrderRecord
from lab_agent.domain.state_machines import LineState
from lab_agent.ports.credential_repositories import StoredToken
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.harness.paths import CATALOGUE
from tests.harness.programs import free_port

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


def line_with(process: subprocess.Popen[str], pattern: str, seconds: float = DEADLINE) -> str:
    """The next line of a program that matches, by a deadline."""
    found: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            if match := re.search(pattern, line):
                found.put(match.group(0))
                return
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    line = found.get(timeout=seconds)
    assert line is not None, f"it ended without {pattern}"
    return line


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
    """The laboratory's settings, pointed at the service."""
    text = lab.config.read_text().replace("http://127.0.0.1:9/", f"{service}/").replace("http://127.0.0.1:9", service)
    lab.config.write_text(text.replace('client_id = "client"', 'client_id = "client"\nclient_secret = "hunter4"'))
    return lab


def verdicts(done) -> dict[str, str]:
    return {line["name"]: line["status"] for line in json.loads(done.out)["checks"]}


def edit(lab, before: str, after: str) -> None:
    text = lab.config.read_text()
    assert before in text
    lab.config.write_text(text.replace(before, after))


def test_offline_check_skips_network(cli, lab):
    """Offline, everything here is tried and the network is left out."""
    done = cli("check", "--offline", "--json")
    assert done.code == 0
    assert verdicts(done) == {
        "settings": "ok",
        "encryption key": "ok",
        "store": "ok",
        "rules": "ok",
        "active catalogue": "to do",
        "catalogue": "ok",
        "contracts": "ok",
        "API clients": "to do",
        "mappings": "ok",
        "adapter folder": "ok",
        "notifications": "to do",
        "exchange": "skipped",
        "sign-in": "skipped",
        "service contracts": "skipped",
    }


def test_channels_that_are_told_are_named(cli, lab):
    lab.config.write_text(lab.config.read_text() + '\n[notify.command.pager]\nargv = ["/bin/true"]\n')
    lines = json.loads(cli("check", "--offline", "--json").out)["checks"]
    found = next(line for line in lines if line["name"] == "notifications")
    assert (found["status"], found["detail"]) == ("ok", "command.pager")


def test_pending_setup_steps_are_not_errors(cli, lab):
    (lab.folder / "lab.db").unlink()
    edit(lab, str(CATALOGUE), "no-catalogue")
    done = cli("check", "--offline")
    assert done.code == 0
    assert "run `lab-agent db upgrade`" in done.out
    assert "api.catalogue" in done.out


@pytest.mark.parametrize(
    ("by", "change", "status", "says"),
    [
        (None, False, "ok", "as in force"),
        (None, True, "to do", "which it replaces at the next start"),
        ("anna", False, "ok", "as in force"),
        ("anna", True, "to do", "which anna imported"),
    ],
)
@pytest.mark.parametrize("option", ["--files", "--offline"])
def test_folder_compared_with_catalogue_in_force(cli, lab, tmp_path, by, change, status, says, option):
    tables = read_tables(CATALOGUE)
    stored = CatalogueVersion(
        version=content_version(tables), since=datetime.now(UTC), content=pack_tables(tables), origin="x", by=by
    )
    lab.write(lambda uow: uow.catalogues.add(stored))
    folder = Path(shutil.copytree(CATALOGUE, tmp_path / "folder"))
    edit(lab, str(CATALOGUE), str(folder))
    if change:
        (folder / "contracts.csv").write_text("contract,name\nC-100,Ours\nC-200,B\n")
    lines = {line["name"]: line for line in cli("check", option, "--json").json()["checks"]}
    assert lines["catalogue"]["status"] == status
    assert says in lines["catalogue"]["detail"]
    assert stored.version in lines["active catalogue"]["detail"]


@pytest.mark.parametrize(
    ("kept", "environment", "status", "says"),
    [
        ({}, "production", "ok", "codes.csv is missing, units.csv is missing, answers.csv is missing"),
        ({"units.csv": 99}, "production", "ok", "codes.csv is missing, units.csv 28 rows, answers.csv is missing"),
        ({"codes.csv": 1, "units.csv": 2}, "production", "ok", "codes.csv 0 rows, units.csv 1 rows, answers.csv is missing"),
        ({"codes.csv": 99}, "production", "to do", "codes.csv has those of the example"),
        ({"codes.csv": 99}, "stage", "ok", "codes.csv "),
        (None, "production", "ok", "no tables are used: results.mappings is not set"),
    ],
)
def test_mapping_tables_in_use_are_named(cli, lab, kept, environment, status, says):
    edit(lab, 'environment = "sandbox"', f'environment = "{environment}"')
    if kept is not None:
        (lab.folder / "tables").mkdir()
        edit(lab, "[status]", '[results]\nmappings = "tables"\n[status]')
    for name, lines in (kept or {}).items():
        text = (CATALOGUE.parent / "mappings" / name).read_text(encoding="utf-8")
        (lab.folder / "tables" / name).write_text("".join(text.splitlines(keepends=True)[:lines]), encoding="utf-8")
    found = {line["name"]: line for line in cli("check", "--files", "--json").json()["checks"]}["mappings"]
    assert found["status"] == status
    assert says in found["detail"]


@pytest.mark.parametrize(("environment", "is_told"), [("production", True), ("stage", False)])
@pytest.mark.parametrize("has_database", [True, False])
def test_sample_in_production_is_a_step_to_do(cli, lab, environment, is_told, has_database):
    edit(lab, 'environment = "sandbox"', f'environment = "{environment}"')
    if not has_database:
        (lab.folder / "lab.db").unlink()
    lines = {line["name"]: line["status"] for line in cli("check", "--files", "--json").json()["checks"]}
    assert lines.get("sample") == ("to do" if is_told else None)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("[exchange.contracts.C-200]", "", "only in the catalogue: C-200"),
        ("[exchange.contracts.C-200]", "[exchange.contracts.C-200]\n[exchange.contracts.C-300]", "not in the catalogue: C-300"),
        ("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "short", "encryption key"),
        ("[api]", '[rules.severities]\n"tube.lable" = "warn"\n[api]', "tube.lable"),
        ('results = "results"', 'reslts = "results"', "lis.folder"),
        ('"our-guid"', '"<our guid>"', "exchange.laboratory: is still a placeholder"),
        ('"our-guid"', '"https://exchange.example/"', "exchange.laboratory: is no guid"),
        ("contracts.C-200]", 'contracts."https://exchange.example"]', "contracts.https://exchange.example: is no contract"),
        ("contracts.C-200]", 'contracts."<contract code>"]', "exchange.contracts.<contract code>: is still a placeholder"),
        ("[api]", '[api]\npublic_url = "C-100"', "api.public_url: is not an http or https address"),
        ("[api]", '[monitoring]\napi_address = "<address>"\n[api]', "monitoring.api_address: is still a placeholder"),
        ('"http://codes.lab.example/second-labels"', '"second labels"', "exchange.second_labels_system: is no address"),
        ("[api]", "[[api.tokens]]\nname='x'\nsha256='" + "0" * 64 + "'\ncontracts=['C-9']\n[api]", "C-9"),
        ("[api]", "[[lis.routes]]\ngroups=['Chemistri']\nadapter='folder'\n[api]", "lis.routes.0.groups"),
    ],
)
def test_failed_check_is_told_by_exit_code(cli, lab, before, after, says):
    edit(lab, before, after)
    done = cli("check", "--offline")
    assert done.code == (2 if "The settings are not valid" in done.out else 1)
    assert [line for line in done.out.splitlines() if line.startswith("WRONG") and says in line]


def test_encryption_key_mismatch_detected(cli, lab):
    lab.write(
        lambda uow: uow.oauth_tokens.add(
            StoredToken(generation=1, access_token="a", refresh_token=None, expires_at=datetime.now(UTC))
        )
    )
    assert cli("check", "--offline").code == 0
    edit(lab, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=")
    done = cli("check", "--offline")
    assert done.code == 2
    assert "not among those set" in done.out


def test_broken_catalogue_names_sheet_and_row(cli, lab):
    folder = lab.folder / "broken"
    folder.mkdir()
    (folder / "items.csv").write_text("item\n", encoding="utf-8")
    edit(lab, str(CATALOGUE), str(folder))
    done = cli("check", "--offline")
    assert done.code == 1
    assert "items.csv" in done.out


@pytest.mark.parametrize("wanted", [True, False])
def test_invalid_logo_and_font_detected_where_reports_printed(cli, lab, wanted):
    """A file that is no picture or no font is found where reports are printed."""
    (lab.folder / "logo.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    (lab.folder / "font.ttf").write_bytes(b"no font")
    keys = f'print_reports = {str(wanted).lower()}\nprint_logo = "{lab.folder}/logo.svg"\nprint_font = "{lab.folder}/font.ttf"\n'
    edit(lab, "[api]", f"[results]\n{keys}[api]")
    done = cli("check", "--offline")
    assert done.code == wanted
    assert ("results.print_logo: " in done.out) is wanted
    assert ("results.print_font: " in done.out) is wanted
    if wanted:
        edit(lab, keys, "print_reports = true\n")
        assert "letterhead is valid" in cli("check", "--offline").out


def test_invalid_settings_listed_by_check(cli, lab):
    edit(lab, 'laboratory = "our-guid"', "")
    done = cli("check", "--json")
    assert done.code == 2
    assert verdicts(done) == {"settings": "WRONG"}


def test_settings_printed_with_secrets_masked(cli, lab):
    done = cli("check", "--offline", "--settings")
    assert "exchange.oauth.password = ***" in done.out
    assert "hunter2" not in done.out
    assert "MDEyMzQ1" not in done.out


def test_unreachable_exchange_reported_once(cli, lab):
    done = cli("check", "--json")
    assert done.code == 1
    assert verdicts(done)["exchange"] == "WRONG"
    assert verdicts(done)["sign-in"] == "skipped"
    assert "Traceback" not in done.out + done.err


def test_check_against_exchange_tries_everything(cli, at_service):
    done = cli("check", "--json")
    found = verdicts(done)
    assert (found["exchange"], found["sign-in"], found["contract C-100"]) == ("ok", "ok", "ok")
    assert found["adapter folder"] == "ok"
    assert found["contract C-200"] == "WRONG", "the service does not know it"
    assert done.code == 1


class ProxiedService(BaseHTTPRequestHandler):
    """A service behind a proxy, whose links name its own address inside."""

    relation = "next"

    def do_POST(self) -> None:
        self._answer({"access_token": "t"})

    def do_GET(self) -> None:
        link = {"relation": self.relation, "url": "http://internal:8080/fhir/task?page=2"}
        self._answer({"resourceType": "Bundle", "type": "searchset", "link": [link]})

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _answer(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.mark.parametrize(("relation", "status"), [("next", "WRONG"), ("self", "to do")])
def test_links_to_other_origin_are_reported(cli, lab, monkeypatch, relation, status):
    """A service that knows itself by another address than ours leads us away, page after page."""
    monkeypatch.setattr(ProxiedService, "relation", relation)
    with ThreadingHTTPServer(("127.0.0.1", 0), ProxiedService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        lab.config.write_text(lab.config.read_text().replace("http://127.0.0.1:9", f"http://127.0.0.1:{server.server_port}"))
        found = said(cli("check", "--json"))
        server.shutdown()
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
    with ThreadingHTTPServer(("127.0.0.1", 0), ProxiedService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        lab.config.write_text(lab.config.read_text().replace("http://127.0.0.1:9", f"http://127.0.0.1:{server.server_port}"))
        found = said(cli("check", "--json"))
        server.shutdown()
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
    with ThreadingHTTPServer(("127.0.0.1", 0), ProxiedService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        lab.config.write_text(lab.config.read_text().replace("http://127.0.0.1:9", base))
        if others == "known":
            now = datetime.now(UTC)
            record = OrderRecord(key=order_key(f"{base}/", "t1"), task_id=ResourceId("t1"), seen_at=now, changed_at=now)
            lab.write(lambda uow: uow.orders.add_new([record]))
        found = said(cli("check", "--json"))
        server.shutdown()
    assert found["exchange"][0] == "ok"
    assert ("other agents" in found) is (others == "report")
    if others == "report":
        assert (found["other agents"][0], "t1" in found["other agents"][1]) == ("WRONG", True)
        assert "last changed at 2026-03-01 09:30:00 UTC" in found["other agents"][1]


def test_job_that_fails_for_long_is_told(cli, lab):
    def fail(uow):
        ago = datetime.now(UTC) - timedelta(minutes=5)
        names = {"dedup_key": "j", "ordering_key": "j", "target": "x", "due_at": ago}
        uow.jobs.add(NewJob(kind=JobKind.DELIVER_REPORT, **names))
        (job,) = uow.jobs.claim({frozenset(JobKind): 1}, owner="w", now=ago, lease=timedelta(hours=1))
        uow.jobs.save(job.outcome_unknown(ago, ago, "500").failed(ago, FailureCause.OUTCOME_UNKNOWN))

    lab.write(fail)
    done = cli("check", "--offline", "--json")
    assert done.code == 1
    (condition,) = json.loads(done.out)["conditions"]
    assert (condition["condition"], condition["cause"].endswith("1 deliver_report")) == ("jobs.outcome_unknown", True)
    assert datetime.fromisoformat(condition["since"]) < datetime.now(UTC) - timedelta(minutes=4)


def test_exchange_checked_even_without_database(cli, at_service):
    (at_service.folder / "lab.db").unlink()
    assert verdicts(cli("check", "--json"))["sign-in"] == "ok"


def test_wrong_password_fails_login_check(cli, at_service):
    edit(at_service, "hunter2", "hunter3")
    done = cli("check")
    assert done.code == 1
    assert [line for line in done.out.splitlines() if line.startswith("WRONG") and "sign-in" in line]
    assert "hunter3" not in done.out + done.err


def test_login_not_needed_for_noninteractive_grant(cli, lab):
    """A grant that needs no person says so at `login`."""
    done = cli("login")
    assert done.code == 1
    assert "needs no sign-in by a person" in done.err


@pytest.mark.parametrize("way", ["listening", "pasted"])
def test_user_logs_in_once(cli, at_service, callback, way):
    edit(at_service, 'grant = "password"', f'grant = "authorization_code"\nredirect_uri = "{callback}"')
    assert verdicts(cli("check", "--json"))["sign-in"] == "WRONG"
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
    assert verdicts(cli("check", "--json"))["sign-in"] == "ok"


# --- what the API offers ----------------------------------------------------------------------------------------------------


def said(done):
    """The lines by what they are about: status, detail, hint."""
    return {line["name"]: (line["status"], line["detail"], line["hint"]) for line in json.loads(done.out)["checks"]}


def test_active_catalogue_checked_instead_of_folder(cli, lab):
    assert said(cli("check", "--offline", "--json"))["active catalogue"][0] == "to do"
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    assert "C-200 (" in said(cli("check", "--offline", "--json"))["active catalogue"][1]
    other = shutil.copytree(CATALOGUE, lab.folder / "other")
    prices = other / "contract_items.csv"
    prices.write_text("".join(row for row in prices.read_text().splitlines(keepends=True) if not row.startswith("C-200")))
    contracts = other / "contracts.csv"
    contracts.write_text("".join(row for row in contracts.read_text().splitlines(keepends=True) if not row.startswith("C-200")))
    turnaround = other / "turnaround.csv"
    turnaround.write_text("".join(row for row in turnaround.read_text().splitlines(keepends=True) if ",C-200," not in row))
    assert cli("catalogue", "import", str(other), "--yes").code == 0
    done = cli("check", "--offline", "--json")
    assert done.code == 1
    assert "differs from the active catalogue" in said(done)["catalogue"][1]
    assert said(done)["contracts"][:2] == ("WRONG", "not in the catalogue: C-200")


def test_unreadable_stored_catalogue_fails_check(cli, lab):
    lab.write(
        lambda uow: uow.catalogues.add(CatalogueVersion(version="v", since=datetime.now(UTC), content=b"damaged", origin="x"))
    )
    done = cli("check", "--offline", "--json")
    assert done.code == 1
    assert said(done)["active catalogue"][0] == "WRONG"


def test_contract_without_api_client_reported(cli, lab):
    """Each contract needs a client, and stored tokens count."""
    assert said(cli("check", "--offline", "--json"))["API clients"][0] == "to do"
    assert cli("api-token", "create", "clinic", "--contract", "C-100").code == 0
    done = cli("check", "--offline", "--json")
    assert done.code == 1
    assert said(done)["API clients"][:2] == ("WRONG", "no client may see C-200")
    assert cli("api-token", "create", "other", "--contract", "C-200").code == 0
    assert said(cli("check", "--offline", "--json"))["API clients"][:2] == ("ok", "clinic, other")
    assert cli("api-token", "create", "third", "--contract", "C-9").code == 0
    assert "name unknown contracts: C-9" in said(cli("check", "--offline", "--json"))["contracts"][1]
    assert cli("api-token", "revoke", "third").code == 0
    assert cli("api-token", "revoke", "other").code == 0
    assert said(cli("check", "--offline", "--json"))["API clients"][1] == "no client may see C-200"


def test_low_or_exhausted_label_pools_reported(cli, lab):
    pools = "".join(
        f"[[api.pools]]\nname='{name}'\npattern='{name}##'\nlast=99\nwarn_below=10\ncontracts=['{contract}']\n"
        for name, contract in (("one", "C-100"), ("two", "C-200"))
    )
    edit(lab, "[api]", f"{pools}[api]\nlabel_mark = '{lab.folder}/mark.json'")
    lab.write(lambda uow: (uow.issued_labels.lock_ranges("one##", 1), uow.issued_labels.set_next_number("one##", 1, 95)))
    found = said(cli("check", "--offline", "--json"))
    assert (found["labels one"][:2], found["labels two"][:2]) == (("to do", "5 left"), ("ok", "99 left"))
    (lab.folder / "mark.json").write_text('{"two##": {"1": 99}}')
    done = cli("check", "--offline", "--json")
    assert done.code == 1
    assert said(done)["labels two"][0] == "WRONG"
    assert lab.write(lambda uow: uow.issued_labels.lock_ranges("two##", 1)) == {1: 1}  # the check took nothing
    (lab.folder / "mark.json").write_text("{")
    assert said(cli("check", "--offline", "--json"))["labels"][0] == "WRONG"


def test_unused_second_label_pool_fails_check(cli, lab):
    """A pool of second barcodes that no test takes is an error."""
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    pools = "".join(
        f"[[api.pools]]\nname='{name}'\npattern='{pattern}'\nlast=999\nwarn_below=10\nsecond=true\n"
        for name, pattern in (("serves", "9###-####"), ("useless", "###-####"))
    )
    edit(lab, "[api]", f"{pools}[api]")
    lines = json.loads(cli("check", "--offline", "--json").out)["checks"]
    wrong = [(line["name"], line["hint"]) for line in lines if line["status"] == "WRONG" and line["name"].startswith("labels")]
    assert [what for what, _ in wrong] == ["labels useless"]
    assert "000-000-000, 0000-0000" in wrong[0][1]


def test_unset_system_of_second_barcodes_fails_check(cli, lab):
    """The catalogue has studies of two barcodes, and the settings do not say by which system the second one is known."""
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    assert "second barcodes" not in said(cli("check", "--offline", "--json"))
    edit(lab, 'second_labels_system = "http://codes.lab.example/second-labels"', "")
    found = said(cli("check", "--offline", "--json"))["second barcodes"]
    assert found[0] == "WRONG"
    assert "042.036" in found[1]


def test_removed_table_of_a_system_with_open_lines_is_wrong(cli, lab):
    """Its results would not be read any more, and nobody would be told."""
    now = datetime.now(UTC)

    def add(uow) -> None:
        uow.orders.add(OrderRecord(key="R1", task_id="t", seen_at=now, changed_at=now))
        line = LineRecord(key="L1", order="R1", task_id="t1", state=LineState.ACCEPTED, adapter="micro", changed_at=now)
        uow.orders.add_line(line)

    lab.write(add)
    done = cli("check", "--offline", "--json")
    assert (done.code, verdicts(done)["adapter micro"]) == (1, "WRONG")
    assert said(done)["adapter micro"][1].endswith("lines there wait for results: 1")
