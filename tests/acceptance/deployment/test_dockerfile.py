"""The Dockerfile, checked without a container engine: its steps are replayed in a virtual environment."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_agent.settings.api import ApiSettings
from lab_agent.settings.sources import CONFIG_VARIABLE, read_environment
from lab_agent.settings.status import StatusSettings
from tests.acceptance.deployment.test_wheel import INIT
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.harness.proof import in_full

NEEDED = (
    "status/templates/base.html",
    "status/static/style.css",
    "store/migrations/env.py",
    "py.typed",
    "share/config/catalogue/items.csv",
)


def steps() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def args(name: str) -> list[str]:
    return [arguments for instruction, arguments in steps() if instruction == name]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, from its FROM on."""
    starts = [index for index, (name, _) in enumerate(steps()) if name == "FROM"]
    return [steps()[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def environment_variables() -> dict[str, str]:
    return dict(each.split("=", 1) for each in args("ENV"))


def copied() -> Iterator[tuple[str, str]]:
    """The sources and targets of all COPY instructions that copy from this folder."""
    for rest in (each for each in args("COPY") if not each.startswith("--from=")):
        *sources, target = rest.split()
        for source in sources:
            yield source, target if len(sources) == 1 else f"{target}{source}"


def test_build_is_pinned():
    """By hashes, and the image by a digest that the caller gives: in the file it would be outdated."""
    assert args("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]
    installs = [rest for rest in args("RUN") if " install " in rest]
    assert installs
    assert all("--require-hashes" in rest or {"--no-deps", "--no-build-isolation"} <= {*rest.split()} for rest in installs)


def test_run_stage_has_environment_alone_and_unprivileged_user():
    _, run = stages()
    assert [rest for name, rest in run if name == "COPY"] == ["--from=build /opt/lab-agent /opt/lab-agent"]
    (creation,) = [rest for name, rest in run if name == "RUN"]
    assert creation.startswith("useradd --system --uid 61234 ")
    names = [name for name, _ in run]
    assert ("USER", "lab-agent") in run
    assert names.index("USER") > max(names.index("RUN"), names.index("COPY"))
    assert "ADD" not in [name for name, _ in steps()]


def test_programs_can_be_reached_from_outside():
    variables = {name: value for name, value in environment_variables().items() if name != CONFIG_VARIABLE}
    table = read_environment(variables, {"status", "api"}).table
    assert StatusSettings.model_validate(table["status"]).host == "0.0.0.0"
    assert ApiSettings.model_validate(table["api"]).host == "0.0.0.0"
    assert args("EXPOSE") == [f"{StatusSettings().port} {ApiSettings().port}"]
    assert args("VOLUME") == ["/var/lib/lab-agent"]
    assert "/var/lib/lab-agent/lab-agent.db" in (ROOT / "config" / "production.toml").read_text()


def test_processes_receive_signals_directly():
    assert [json.loads(rest) for rest in args("ENTRYPOINT")] == [["lab-agent"]]
    assert all(isinstance(json.loads(rest), list) for rest in args("CMD"))


def health_check(address: str) -> int:
    (rest,) = args("HEALTHCHECK")
    command = json.loads(rest.split("CMD", 1)[1])
    command[0] = sys.executable
    return subprocess.run(command, env={"HEALTH_URL": address}, capture_output=True, check=False).returncode


def test_health_check_reports_live_failing_and_missing_process():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert health_check(f"{base}/healthz") == 0
        assert health_check(f"{base}/failing") != 0
        server.shutdown()
    assert health_check(f"{base}/healthz") != 0
    assert environment_variables()["HEALTH_URL"] == "http://127.0.0.1:8481/healthz"


def snapshot(folder: Path) -> set[tuple[str, int]]:
    return {(str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*")}


@in_full
@pytest.mark.proof
def test_build_steps_yield_working_programs(tmp_path: Path):
    """The steps of the build stage, with folders of this test; the programs change nothing of what they made."""
    home, work, state = tmp_path / "opt", tmp_path / "build", tmp_path / "state"
    venv.create(tmp_path / "python", with_pip=True)
    _copy_sources(work)
    environment = {"PATH": f"{tmp_path / 'python' / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    network = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http", "HTTP", "no_"))}
    for name, rest in stages()[0]:
        if name == "RUN":
            run(["/bin/sh", "-c", rest.replace("/opt/lab-agent", str(home))], cwd=work, env=environment | network)
    shutil.rmtree(work)
    purelib = home / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    assert [name for name in NEEDED if not (purelib / "lab_agent" / name).is_file()] == []
    assert [name for name in ("hatchling", "pip", "editables") if (purelib / name).exists()] == []
    state.mkdir()
    before = snapshot(home)
    environment = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(state), "PYTHONDONTWRITEBYTECODE": "1"}
    run(["lab-api", "--help"], cwd=state, env=environment)
    run(["lab-agent", *INIT.split()], cwd=state, env=environment)
    environment["LAB_AGENT_CONFIG"] = "lab-agent.toml"
    upgrade = [str(home / "bin" / "lab-agent"), "db", "upgrade"]
    several = [subprocess.Popen(upgrade, cwd=state, env=environment, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [each.wait(DEADLINE) for each in several] == [0, 0, 0], "several may upgrade at once"
    run(["lab-agent", "check", "--offline"], cwd=state, env=environment)
    assert snapshot(home) == before, "the root of the container may be read-only"


def _copy_sources(work: Path) -> None:
    for source, target in copied():
        copy = work / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, copy)


def run(command: list[str], *, cwd: Path, env: dict[str, str]) -> None:
    program = shutil.which(command[0], path=env["PATH"])
    assert program is not None, command[0]
    done = subprocess.run([program, *command[1:]], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
