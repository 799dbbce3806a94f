"""Completion as a shell asks for it, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab_agent.cli.lazy_commands import COMPLETION_VARIABLE
from tests.integration.cli.conftest import Cli

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


def test_script_names_program_variable_and_what_is_typed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in _QUESTIONS:
        done = cli("completion", shell)
        assert (done.code, f"{COMPLETION_VARIABLE}=complete_{shell}" in done.out) == (0, True)
    assert cli("completion", "tcsh").code == 2
    (tmp_path / "lab-agentctl").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LAB_AGENT_CONFIG", "/etc/lab-agent-stage/lab-agent.toml")
    assert "lab-agentctl" in cli("completion", "bash").out.split()


@pytest.mark.parametrize("shell", _QUESTIONS)
def test_script_is_accepted_by_its_shell(cli: Cli, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script = tmp_path / "script"
    script.write_text(cli("completion", shell).out)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
