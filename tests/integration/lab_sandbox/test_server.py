"""The sandbox on a real port: its command line, and the faults that need a connection."""

import signal
import socket
import subprocess
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from lab_sandbox.cli import app
from lab_sandbox.config import CLINIC_GUID
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.integration.lab_sandbox.world import close, grant, make_world, patient

RESET = (httpx.ReadError, httpx.RemoteProtocolError)


@contextmanager
def running_sandbox(*options):
    """`lab-sandbox run` as a process on a free port; yields its address."""
    words = ("run", "--port", "0", *options)
    process = forked_programs.start("lab_sandbox.cli", *words, stdout=subprocess.PIPE)
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        yield line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        assert process.wait(DEADLINE) in {0, -signal.SIGTERM}
        process.close()


@pytest.fixture(scope="module")
def shared_address():
    """One sandbox for all tests that only set faults."""
    with running_sandbox("--fault-admin") as address:
        yield address


def signed_in(address, login, client_id):
    """Somebody who calls with a token of this service."""
    form = {"grant_type": "password", "username": login, "password": f"demo-{login}-password"}
    form |= {"client_id": client_id, "client_secret": f"demo-{login}-secret"}
    token = httpx.post(f"{address}/connect/token", data=form, timeout=DEADLINE).json()["access_token"]
    return httpx.AsyncClient(base_url=address, timeout=DEADLINE, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
async def client(shared_address):
    async with signed_in(shared_address, "clinic", "clinic-app") as opened:
        await activate(opened)
        yield opened


async def activate(client, *faults):
    assert (await client.put("/sandbox/faults", json={"faults": list(faults)})).status_code == 200


async def read(client, **more):
    return await client.get("/fhir/Contract", **more)


async def test_port_0_prints_address_used_as_base_url(client):
    answer = (await read(client)).json()
    address = str(client.base_url)
    assert answer["entry"][0]["resource"]["meta"]["security"][0]["system"] == f"{address.rstrip('/')}/security/owner"
    assert answer["link"][0]["url"].startswith(address)


async def test_settings_and_options_of_the_command(request):
    """The base address of the settings stays on another port; `--strict` is an option."""
    file = request.config.rootpath / "config" / "sandbox-service.toml"
    with running_sandbox("--config", str(file), "--strict") as address:
        async with signed_in(address, "laboratory", "lab-agent") as client:
            assert (await client.get("/fhir/contract")).status_code == 404
            assert (await client.get("/sandbox/faults")).status_code == 404
            answer = await read(client)
    assert answer.headers["content-type"].startswith("application/fhir+json")
    found = [entry["resource"] for entry in answer.json()["entry"]]
    assert {one["meta"]["security"][0]["system"] for one in found} == {"http://127.0.0.1:8480/security/owner"}
    assert {one["identifier"][0]["value"] for one in found} == {"C-100", "C-200"}


async def test_connection_reset_before_or_after_work_or_truncated(client):
    made = 0
    body = patient(meta=grant("read", guid=CLINIC_GUID))
    for kind, stored in (("reset", 0), ("lost_reply", 1), ("truncate", 1)):
        await activate(client, {"kind": kind, "route": "POST /fhir/Patient", "count": 1})
        with pytest.raises(RESET):
            await client.post("/fhir/Patient", json=body)
        made += stored
        assert (await client.get("/healthz")).json()["resources"].get("Patient", 0) == made
    assert (await client.post("/fhir/Patient", json=body)).status_code == 200


async def test_file_storage_survives_restart(tmp_path):
    first = make_world(data=str(tmp_path / "sandbox.db"))
    made = await first.patient()
    await close(first)
    second = make_world(data=str(tmp_path / "sandbox.db"))
    assert await second.status(f"/fhir/patient/{made}", second.clinic) == 200
    assert len(await second.found("/fhir/Contract", second.clinic)) == 2
    await close(second)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("colour = 1", ["colour"]),
        ("[[contracts]]\ncode = 'C'\npartner = 'x'\nlaboratory = 'y'", ["contract C", "partner"]),
        ("port = ", ["not valid TOML"]),
        ("[rules]\noff = ['two-barcode']", ["rules.off.0", "two-barcodes"]),
        ("faults = '/nowhere/faults.toml'", ["/nowhere/faults.toml"]),
        ("data = '/nowhere/data.db'", ["/nowhere/data.db"]),
        ("", ["{port}", "--port"]),
    ],
)
def test_start_that_fails_reported_in_one_line(tmp_path, text, names):
    """Also where the port is in use."""
    file = tmp_path / "sandbox.toml"
    file.write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = "0" if text else str(occupied.getsockname()[1])
        result = CliRunner().invoke(app, ["run", "--config", str(file), "--port", port])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert [name for name in names if name.format(port=port) not in result.output] == []
