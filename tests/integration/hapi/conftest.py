"""A FHIR STU3 server that nobody here wrote, and `lab-agent run` before it, once for all tests of this folder.

HAPI FHIR's library comes from Maven, from wherever Maven fetches here, once; its classes are kept outside the checkout. Without a
JDK, Maven or the library these tests are skipped, and say why.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from lab_sandbox.config import CLINIC_GUID
from lab_sandbox.demo.processes import program_path
from lab_sandbox.demo.workspace import Workspace, create_workspace
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.integration.hapi.stu3_server import FHIR_JSON, Stu3Server

HERE = Path(__file__).parent
FETCH_SECONDS, COMPILE_SECONDS, READY_SECONDS = 240, 60, 180


@pytest.fixture(scope="session")
def java_command() -> list[str]:
    """The command that starts the server, built if it was not yet."""
    if missing := [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]:
        pytest.skip(f"the STU3 server is not tried: {', '.join(missing)} missing on this machine")
    sources = sorted((HERE / "stu3").glob("*.java"))
    content = hashlib.sha256(b"".join(file.read_bytes() for file in (HERE / "pom.xml", *sources))).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "lab-agent-tests" / f"stu3-server-{content[:16]}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes
        if not _is_built(home):
            _build(home, sources)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{home / 'classes'}:{(home / 'classpath').read_text()}", "stu3.Server"]


def _is_built(home: Path) -> bool:
    found = home / "classpath"
    return found.exists() and all(Path(jar).exists() for jar in found.read_text().split(":"))


def _build(home: Path, sources: list[Path]) -> None:
    shutil.copy(HERE / "pom.xml", home)
    fetch = ["mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=fetched"]
    try:
        subprocess.run(fetch, cwd=home, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the STU3 server is not tried: Maven did not fetch it within {FETCH_SECONDS} seconds")
    except subprocess.CalledProcessError as exc:
        words = " ".join(exc.stdout.decode(errors="replace").split()) or f"code {exc.returncode}"
        pytest.skip(f"the STU3 server is not tried: Maven cannot fetch it: {words[:300]}")
    jars = (home / "fetched").read_text()
    subprocess.run(["javac", "-cp", jars, "-d", "classes", *sources], cwd=home, check=True, timeout=COMPILE_SECONDS)
    (home / "fetched").rename(home / "classpath")


@pytest.fixture(scope="session")
def server_address(java_command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's base address, as `exchange.base_url` has it; its FHIR endpoint is `fhir/` below it."""
    log = tmp_path_factory.mktemp("stu3") / "server.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(java_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file) as server,
    ):
        assert server.stdin
        assert server.stdout
        port = server.stdout.readline().strip().decode()
        assert port.isdecimal(), log.read_text()[-4000:]
        address = f"http://127.0.0.1:{port}/"
        _warm_up(address)
        yield address
        server.stdin.close()  # it ends when its standard input does


def _warm_up(address: str) -> None:
    """The validator reads all of STU3 for its first resource, which takes longer than an agent waits."""
    with httpx.Client(trust_env=False, timeout=READY_SECONDS) as http:
        answer = http.post(f"{address}fhir/Patient", json={"resourceType": "Patient"}, headers=FHIR_JSON)
    assert answer.status_code == 201, answer.text


@pytest.fixture(scope="session")
def installation(server_address: str) -> Iterator[Workspace]:
    """`lab-agent run` with the folder adapter, and the folders that it shares with the laboratory system."""
    workspace = create_workspace(ROOT / "config", other_ports=True)
    settings = workspace.agent_settings
    text = settings.read_text().replace(f'base_url = "{workspace.service_url}"', f'base_url = "{server_address}"')
    sign_in = '[exchange.oauth]\ngrant = "basic"\nusername = "laboratory"\npassword = "any"\n\n'
    text = re.sub(r"(?ms)^\[exchange\.oauth\]\n.*?(?=^\[)", sign_in, text)
    contract = "[exchange.contracts.C-100]\n"
    settings.write_text(text.replace(contract, f'{contract}counterparty = "{CLINIC_GUID}"\n'))  # a plain server names no owner
    agent, config = program_path("lab-agent"), ("--config", str(settings))
    try:
        subprocess.run([agent, "db", "upgrade", *config], cwd=workspace.folder, check=True, capture_output=True, timeout=DEADLINE)
        with (workspace.logs / "agent.log").open("wb") as log:
            process = subprocess.Popen([agent, "run", *config], cwd=workspace.folder, stdout=log, stderr=log)
        try:
            _wait_until_ready(workspace, process)
            yield workspace
        finally:
            process.terminate()
            process.wait(DEADLINE)
    finally:
        shutil.rmtree(workspace.folder, ignore_errors=True)


def _wait_until_ready(workspace: Workspace, process: subprocess.Popen[bytes]) -> None:
    transport = httpx.HTTPTransport(retries=10)  # each after a longer pause, until it listens
    with httpx.Client(transport=transport, trust_env=False, timeout=READY_SECONDS) as http:
        assert http.get(f"{workspace.status_url}/healthz").status_code == 200
    assert process.poll() is None


@pytest.fixture
def agent_log(installation: Workspace) -> Iterator[None]:
    """Shows the end of the agent's log beside a test that fails."""
    yield
    sys.stdout.write((installation.logs / "agent.log").read_text()[-4000:])


@pytest.fixture
async def server(server_address: str) -> AsyncIterator[Stu3Server]:
    """The server, as the clinic uses it."""
    async with httpx.AsyncClient(base_url=f"{server_address}fhir/", trust_env=False, timeout=DEADLINE) as http:
        yield Stu3Server(server_address, http)
