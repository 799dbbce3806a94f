"""The sandbox on a real port: its command line, and the faults that need a connection."""

import asyncio
import io
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import structlog
from typer.testing import CliRunner

from lab_sandbox.cli import app
from lab_sandbox.config import CLINIC_GUID
from lab_sandbox.middleware import log_to_stderr
from tests.harness.clock import DEADLINE

COMMAND = (sys.executable, "-c", "from lab_sandbox.cli import main; main()")


class SignIn(httpx.Auth):
    """A bearer token of each service, from the password grant."""

    requires_response_body = True

    def __init__(self, login, client_id):
        self._form = {"grant_type": "password", "username": login, "password": f"demo-{login}-password"}
        self._form |= {"client_id": client_id, "client_secret": f"demo-{login}-secret"}
        self._tokens = {}

    def auth_flow(self, request):
        origin = request.url.copy_with(path="/connect/token", query=None)
        if origin not in self._tokens:
            answer = yield httpx.Request("POST", origin, data=self._form)
            self._tokens[origin] = answer.json()["access_token"]
        request.headers["Authorization"] = f"Bearer {self._tokens[origin]}"
        yield request


CLINIC = SignIn("clinic", "clinic-app")
LABORATORY = SignIn("laboratory", "lab-agent")


@asynccontextmanager
async def running_sandbox(*options):
    """`lab-sandbox run` as a process on a free port; yields its address."""
    process = await asyncio.create_subprocess_exec(*COMMAND, "run", "--port", "0", *options, stdout=asyncio.subprocess.PIPE)
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), DEADLINE)).decode()
        assert line.startswith("listening on http://127.0.0.1:"), line
        yield line.removeprefix("listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE) in {0, -signal.SIGTERM}


async def failed_run(*options):
    """Exit code and standard error of a run that cannot start."""
    process = await asyncio.create_subprocess_exec(*COMMAND, "run", *options, stderr=asyncio.subprocess.PIPE)
    _, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    return process.returncode, err.decode()


async def activate(client, *faults):
    assert (await client.put("/sandbox/faults", json={"faults": list(faults)})).status_code == 200


async def patient_count(client):
    return (await client.get("/healthz")).json()["resources"].get("Patient", 0)


@pytest.fixture(scope="module")
def shared_address():
    """One sandbox for all tests that only set faults: a process takes a second to start."""
    with subprocess.Popen([*COMMAND, "run", "--port", "0", "--fault-admin"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()
            process.wait(DEADLINE)


@pytest.fixture
async def client(shared_address):
    async with httpx.AsyncClient(base_url=shared_address, timeout=DEADLINE) as opened:
        await activate(opened)
        yield opened


def patient(kit):
    return kit.patient(meta=kit.grant("read", guid=CLINIC_GUID))


async def test_port_0_prints_address_used_as_base_url(client):
    """With port 0 the chosen address is printed, and the base URL follows it."""
    answer = await client.get("/fhir/Contract", auth=CLINIC)
    address = str(client.base_url)
    assert answer.json()["entry"][0]["resource"]["meta"]["security"][0]["system"] == f"{address.rstrip('/')}/security/owner"
    assert answer.json()["link"][0]["url"].startswith(address)


async def test_demo_config_keeps_base_url_on_other_port(request):
    file = request.config.rootpath / "config" / "sandbox-service.toml"
    async with running_sandbox("--config", str(file)) as address, httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client:
        answer = await client.get("/fhir/Contract", auth=LABORATORY)
        systems = {one["resource"]["meta"]["security"][0]["system"] for one in answer.json()["entry"]}
        assert systems == {"http://127.0.0.1:8480/security/owner"}
        codes = {one["resource"]["identifier"][0]["value"] for one in answer.json()["entry"]}
        assert codes == {"C-100", "C-200"}
        assert (await client.get("/sandbox/faults")).status_code == 404


async def test_strict_is_an_option_of_the_command():
    async with running_sandbox("--strict") as address, httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client:
        assert (await client.get("/fhir/contract", auth=CLINIC)).status_code == 404
        answer = await client.get("/fhir/Contract", auth=CLINIC)
        assert answer.headers["content-type"].startswith("application/fhir+json")


async def test_connection_reset_before_work(client, helpers):
    before = await patient_count(client)
    await activate(client, {"kind": "reset", "route": "POST *", "count": 1})
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await client.post("/fhir/Patient", json=patient(helpers), auth=CLINIC)
    assert await patient_count(client) == before
    assert (await client.post("/fhir/Patient", json=patient(helpers), auth=CLINIC)).status_code == 200


async def test_reply_lost_after_work_done(client, helpers):
    before = await patient_count(client)
    await activate(client, {"kind": "lost_reply", "route": "POST /fhir/Patient", "count": 1})
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await client.post("/fhir/Patient", json=patient(helpers), auth=CLINIC)
    assert await patient_count(client) == before + 1


async def test_truncated_body(client, helpers):
    await activate(client, {"kind": "truncate", "route": "GET /fhir/*", "count": 1})
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get("/fhir/Contract", auth=CLINIC)
    assert (await client.get("/fhir/Contract", auth=CLINIC)).status_code == 200


async def test_hang_ends_on_disconnect_or_timeout(client):
    await client.get("/fhir/Contract", auth=CLINIC)  # sign in before the clock of the short time-out runs
    hang = {"kind": "hang", "route": "GET /fhir/*", "count": 1}
    await activate(client, hang | {"seconds": 60}, hang | {"seconds": 0.2, "skip": 1})
    with pytest.raises(httpx.ReadTimeout):
        await client.get("/fhir/Contract", auth=CLINIC, timeout=0.3)
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await client.get("/fhir/Contract", auth=CLINIC)
    assert (await client.get("/fhir/Contract", auth=CLINIC)).status_code == 200


async def test_latency(client):
    await client.get("/fhir/Contract", auth=CLINIC)
    await activate(client, {"kind": "latency", "route": "GET /fhir/*", "seconds": 0.5, "count": 1})
    with pytest.raises(httpx.ReadTimeout):
        await client.get("/fhir/Contract", auth=CLINIC, timeout=0.2)
    assert (await client.get("/fhir/Contract", auth=CLINIC)).status_code == 200


async def test_unreachable_laboratory_reported(client, helpers, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        file = tmp_path / "sandbox.toml"
        file.write_text(config_text(closed.getsockname()[1]))
        async with (
            running_sandbox("--config", str(file)) as address,
            httpx.AsyncClient(base_url=address, timeout=DEADLINE) as other,
        ):
            answer = await other.get("/nomenclature?contract=C-1", auth=("p", "p"))
    assert answer.status_code == 502
    assert "laboratory" in helpers.diagnostics(answer)


def config_text(port):
    return f"""
[[counterparties]]
guid = "p"
name = "p"
kind = "partner"
login = "p"
password = "p"
[[counterparties]]
guid = "l"
name = "l"
kind = "laboratory"
address = "http://127.0.0.1:{port}"
[[contracts]]
code = "C-1"
partner = "p"
laboratory = "l"
[tokens]
allow_basic = true
"""


async def test_file_storage_survives_restart(tmp_path, helpers):
    file = tmp_path / "sandbox.toml"
    file.write_text(f'data = "{tmp_path / "sandbox.db"}"\n')
    async with running_sandbox("--config", str(file)) as address, httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client:
        made = (await client.post("/fhir/Patient", json=patient(helpers), auth=CLINIC)).json()["id"]
    async with running_sandbox("--config", str(file)) as address, httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client:
        assert (await client.get(f"/fhir/patient/{made}", auth=CLINIC)).status_code == 200
        assert len((await client.get("/fhir/Contract", auth=CLINIC)).json()["entry"]) == 2


async def test_port_in_use_reported_in_one_line():
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = str(occupied.getsockname()[1])
        code, err = await failed_run("--port", port)
    assert code == 2
    assert err.count("\n") == 1
    assert port in err
    assert "--port" in err


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("port = 'x'", ["port"]),
        ("colour = 1", ["colour"]),
        ("[rules]\nstale_code = 410", ["rules.stale_code"]),
        ("[[contracts]]\ncode = 'C'\npartner = 'x'\nlaboratory = 'y'", ["contract C", "partner"]),
        ("port = ", ["not valid TOML"]),
        ("[rules]\noff = ['two-barcode']", ["rules.off.0", "two-barcodes"]),
        ("base_url = 'here'", ["base_url", "here"]),
        ("faults = '/nowhere/faults.toml'", ["/nowhere/faults.toml"]),
        ("data = '/nowhere/data.db'", ["/nowhere/data.db"]),
    ],
)
def test_invalid_config_file_reported_in_one_line(tmp_path, text, names):
    file = tmp_path / "sandbox.toml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["run", "--config", str(file), "--port", "0"])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    for name in names:
        assert name in result.output


async def test_golden_order_follows_the_guide(request):
    config = request.config.rootpath / "config" / "sandbox-service.toml"
    async with (
        running_sandbox("--config", str(config), "--base-url", "auto") as address,
        httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client,
    ):
        laboratory = "8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"
        anonymous = {
            "resourceType": "Patient",
            "meta": {"security": [{"system": "read", "code": laboratory}]},
            "gender": "female",
            "birthDate": "1980-02-29",
            "name": [{"family": "0123456789", "given": ["-", "-"]}],
        }
        patient = (await client.post("/fhir/Patient", json=anonymous, auth=CLINIC)).json()["id"]
        text = (Path(__file__).parent / "golden" / "order_request.json").read_text()
        for placeholder, value in (("PATIENT", patient), ("http://exchange.test", address), ("guid-laboratory", laboratory)):
            text = text.replace(placeholder, value)
        json_type = {"Content-Type": "application/json"}
        made = await client.post("/fhir/$CreateDiagnosticRequest", content=text, headers=json_type, auth=CLINIC)
        assert made.status_code == 200, made.text
        found = await client.get("/fhir/task?status=requested&code=OrderProcessingTask", auth=LABORATORY)
        assert len(found.json()["entry"]) == 1


def test_log_uses_current_standard_error(monkeypatch):
    log_to_stderr()
    for _ in range(2):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        structlog.get_logger().info("tested", action="tested")
        assert "action=tested" in stream.getvalue()
        stream.close()
