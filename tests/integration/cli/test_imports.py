"""What a command imports, what it must not, and that its help and completion are whole all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from lab_agent.cli.app import app
from lab_agent.cli.lazy_commands import COMPLETION_VARIABLE, LazyCommand, load_command
from tests.integration.cli.conftest import Cli, LaboratoryFolder

_SERVERS = ("fastapi", "starlette", "uvicorn", "jinja2", "lab_agent.status", "lab_agent.shared.web_server")
_CLIENTS = ("httpx", "aiohttp", "authlib", "lab_agent.exchange")
_FILES = ("openpyxl", "reportlab", "alembic", "pypdf")
_WORK = (
    *("apscheduler", "prometheus_client", "lab_agent.bootstrap", "lab_agent.operations.worker", "lab_agent.queue.job_runner"),
    *("lab_agent.orders.line_lifecycle", "lab_agent.results.delivery", "lab_agent.lis.guard"),
)
_STORE = (
    *("sqlalchemy", "sqlmodel", "pydantic", "lab_agent.store.engine", "lab_agent.settings"),
    *("cryptography", "argon2", "asyncio"),
)
_LISTS = (
    *_SERVERS,
    *_CLIENTS,
    *_FILES,
    *_WORK,
    "structlog",
    "lab_agent.rules.engine",
    "lab_agent.fhir.order_parser",
    "lab_agent.lis.serialization",
)
_OTHER_ADAPTERS = ("lab_agent.lis.hl7v2", "lab_agent.lis.http", "lab_agent.lis.sql")
_ABSENT: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--help",): (*_LISTS, *_STORE),
    ("orders", "list"): _LISTS,
    ("outbox", "list"): _LISTS,
    ("results", "list"): _LISTS,
    ("check", "--offline"): (*_SERVERS, *_FILES, *_OTHER_ADAPTERS, "lab_agent.daemon", "lab_agent.results.trial"),
}
"""Command to the modules that it must not import."""
_ABSENT_IN_DAEMON = (
    *_FILES,
    *_OTHER_ADAPTERS,
    "typer.rich_utils",
    "lab_agent.results.trial",
    "lab_agent.catalogue.spreadsheet.xlsx_reader",
)
_RUN_COMMAND = """
import json, sys
from lab_agent.cli.app import run
code = run()
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""
_RUN_DAEMON = """
import asyncio, json, sys
from pathlib import Path
from lab_agent import daemon
from lab_agent.settings.root import load_settings

build_worker = daemon.worker_bootstrap.build_worker

def stop(*arguments, **named):
    build_worker(*arguments, **named)
    print(json.dumps({"code": 0, "modules": sorted(sys.modules)}), file=sys.stderr)
    raise SystemExit(0)

daemon.worker_bootstrap.build_worker = stop
path = Path(sys.argv[1])
asyncio.run(daemon.run(load_settings(path), path))
"""


def imported(script: str, *words: str) -> set[str]:
    """Run a script in a process of its own, and give what was imported in it."""
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=100, check=False)
    answer = json.loads(done.stderr.splitlines()[-1])
    assert answer["code"] == 0, done.stderr[:2000]
    return set(answer["modules"])


@pytest.mark.slow
@pytest.mark.parametrize("words", _ABSENT, ids=" ".join)
def test_command_imports_only_what_it_uses(lab: LaboratoryFolder, words: tuple[str, ...]) -> None:
    assert imported(_RUN_COMMAND, *words) & set(_ABSENT[words]) == set()


@pytest.mark.slow
def test_daemon_imports_what_is_configured_at_its_start(lab: LaboratoryFolder) -> None:
    """No commands, nor adapters that are not used; and printing at once: what is missing is missing at the start."""
    modules = imported(_RUN_DAEMON, str(lab.config))
    assert "lab_agent.lis.folder" in modules
    assert modules & set(_ABSENT_IN_DAEMON) == set()
    lab.config.write_text(lab.config.read_text() + "[results]\nprint_reports = true\n")
    assert "reportlab" in imported(_RUN_DAEMON, str(lab.config))


def lazy_commands(command: Any) -> list[tuple[LazyCommand, Any]]:
    """All that are imported when they are called, with what they are."""
    inner = getattr(load_command(command), "commands", {}).values()
    found = [(each, each.load()) for each in inner if isinstance(each, LazyCommand)]
    return found + [pair for each in inner for pair in lazy_commands(each)]


@pytest.mark.slow
def test_help_lines_are_the_commands_own() -> None:
    pairs = lazy_commands(typer.main.get_command(app))
    assert len(pairs) > 30
    for lazy, command in pairs:
        assert lazy.help == " ".join(command.help.split("\n\n")[0].split()), lazy.name


_QUESTIONS = {
    "bash": {"COMP_WORDS": "lab-agent orders re", "COMP_CWORD": "2"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "lab-agent orders re"},
    "fish": {"_TYPER_COMPLETE_ARGS": "lab-agent orders re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", _QUESTIONS)
@pytest.mark.parametrize("typed", ["lab-agent", "lab-agentctl", "lab-agentctl --site stage", "lab-agentctl -s stage"])
def test_shell_is_offered_what_may_follow(shell: str, typed: str) -> None:
    """The control command needs neither root nor systemd for that."""
    program, *site = typed.split()
    if site and not Path(sys.executable).with_name("lab-agent").exists():
        pytest.skip("lab-agent is not installed beside this Python")
    questions = {name: text.replace("lab-agent", typed) for name, text in _QUESTIONS[shell].items()}
    questions |= {"COMP_CWORD": str(2 + len(site))} if shell == "bash" else {}
    module = "lab_agent.cli" if program == "lab-agent" else "lab_agent.cli.agentctl"
    script = f"import sys; sys.argv[0] = '{program}'; from {module} import main; main()"
    asked = {**os.environ, **questions, COMPLETION_VARIABLE: f"complete_{shell}"}
    done = subprocess.run([sys.executable, "-c", script], env=asked, capture_output=True, text=True, timeout=60, check=False)
    for word in ("retry", "refuse", "release"):
        assert word in done.stdout, done.stderr
    assert "status" not in done.stdout


@pytest.mark.parametrize("shell", _QUESTIONS)
def test_script_is_accepted_by_its_shell(cli: Cli, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script = tmp_path / "script"
    script.write_text(cli("completion", shell).out)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
