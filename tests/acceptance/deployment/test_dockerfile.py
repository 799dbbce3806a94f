"""The Dockerfile, checked without a container engine: its steps are replayed in a virtual environment."""

from __future__ import annotations

import fnmatch
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
from lab_agent.settings.groups import StatusSettings
from tests.harness.paths import ROOT

NEEDED = ("status/templates/base.html", "status/static/style.css", "store/migrations/env.py", "py.typed")


def steps() -> list[tuple[str, str]]:
    """The instructions with their arguments."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def args(name: str) -> list[str]:
    return [arguments for instruction, arguments in steps() if instruction == name]


def is_ignored(path: str) -> bool:
    """Whether `.dockerignore` excludes a path; the last matching line decides."""
    result = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        bare = pattern.lstrip("!")
        if pattern and not pattern.startswith("#") and _matches(path, bare):
            result = not pattern.startswith("!")
    return result


def _matches(path: str, pattern: str) -> bool:
    anywhere = fnmatch.fnmatch(f"/{path}", f"*/{pattern.removeprefix('**/')}") and pattern.startswith("**/")
    return fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/") or anywhere


def copied() -> Iterator[tuple[str, str]]:
    """The sources and targets of all COPY instructions."""
    for rest in args("COPY"):
        *sources, target = rest.split()
        for source in sources:
            yield source, target if len(sources) == 1 else f"{target}{source}"


def test_image_is_slim_python_with_unprivileged_user():
    assert args("FROM") == ["python:3.11-slim"]
    instructions = [name for name, _ in steps()]
    assert args("USER") == ["lab-agent"]
    assert instructions.index("USER") > max(index for index, name in enumerate(instructions) if name in {"RUN", "COPY"})
    assert "useradd --system" in args("RUN")[0]
    assert "ADD" not in instructions


def test_every_package_pinned_by_hash():
    installs = [rest for rest in args("RUN") if "pip install" in rest]
    assert all("--require-hashes" in rest or "--no-deps" in rest for rest in installs)
    assert "--no-build-isolation" in installs[-1]


def test_processes_receive_signals_directly():
    for name in ("ENTRYPOINT", "CMD"):
        (rest,) = args(name)
        assert isinstance(json.loads(rest), list)
    assert json.loads(args("ENTRYPOINT")[0]) == ["lab-agent"]


def test_ports_and_state_match_settings():
    assert args("EXPOSE") == [f"{StatusSettings().port} {ApiSettings().port}"]
    assert args("VOLUME") == ["/var/lib/lab-agent"]
    production = (ROOT / "config" / "production.toml").read_text()
    assert "/var/lib/lab-agent/lab-agent.db" in production


def test_copied_files_exist_and_are_not_ignored():
    """Copied files exist and reach the builder; secrets and local state do not."""
    for source, _ in copied():
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source
    for secret in ("config/sandbox.toml", ".git/config", "var/demo/lab-agent.db", "lab_agent/__pycache__", ".venv/bin/python"):
        assert is_ignored(secret), secret


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
    assert "ENV HEALTH_URL=http://127.0.0.1:8481/healthz" in (ROOT / "Dockerfile").read_text()


@pytest.mark.proof
def test_build_steps_yield_working_programs(tmp_path: Path):
    home, work = tmp_path / "home", tmp_path / "work"
    venv.create(home, with_pip=True)
    purelib = home / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for source, target in copied():
        copy = work / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, copy)
    environment = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http", "HTTP", "no_"))}
    for rest in args("RUN"):
        if "useradd" not in rest:
            done = subprocess.run(["/bin/sh", "-c", rest], cwd=work, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    for name in NEEDED:
        assert (purelib / "lab_agent" / name).is_file(), name
    assert (home / "share" / "lab-agent" / "catalogue" / "items.csv").is_file(), "the sample catalogue"
    for program in ("lab-agent", "lab-api"):
        done = subprocess.run([home / "bin" / program, "--help"], cwd=tmp_path, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
