"""`lab-agentctl`: a `lab-agent` command as its systemd unit runs it: same user, settings, credentials and folders.

It reads them from the unit, with whatever a drop-in changes, and gives them to `systemd-run`. So secrets stay files of root that
systemd alone hands out, and nothing that a command writes belongs to root.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab_agent.cli.lazy_commands import COMPLETION_VARIABLE
from lab_agent.shared.errors import InputError, LabAgentError
from lab_agent.shared.systemd_units import (
    SETTINGS_FOLDER,
    SETTINGS_NAME,
    WORKER,
    Service,
    parse_unit,
    read_unit,
    settings_file,
    unit_name,
)
from lab_agent.store.audit_origin import find_person

_PASSED_ON = frozenset({
    "User", "Group", "SupplementaryGroups", "WorkingDirectory", "UMask", "StateDirectory", "StateDirectoryMode", "LoadCredential",
    "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted", "Environment", "EnvironmentFile",
})  # fmt: skip
"""Settings of the unit that the command gets."""
_ASKED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
_SITE_WORDS = re.compile(r"^(\S+\s+)(?:--site|-s)\s+\S+\s+")


def main() -> None:
    """Run the command; the exit code is the command's. Without an argument the help of `lab-agent` is shown."""
    if COMPLETION_VARIABLE in os.environ:
        _complete()
    parser = argparse.ArgumentParser(
        prog="lab-agentctl",
        description="Run a lab-agent command as its systemd unit runs it: its user, settings and credentials.",
    )
    parser.add_argument("--site", "-s", help="The site, where there are several: the name after the @ of its units.")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="What to run, as after `lab-agent`.")
    given = parser.parse_args()
    try:
        site = given.site or find_site(SETTINGS_FOLDER)
        unit = unit_name(WORKER, site)
        settings = parse_unit(read_unit(unit), site or "")
        environment = {**os.environ, "SUDO_USER": find_person()}
        command = build_command(unit, settings, given.command or ["--help"], environment, is_terminal=_is_terminal())
    except LabAgentError as exc:
        print(exc, file=sys.stderr)  # noqa: T201 - a program of its own, before anything else is loaded
        raise SystemExit(1) from exc
    os.execvp(command[0], command)  # noqa: S606 - this process is the command from here on


def find_site(folder: Path) -> str | None:
    """The only site that has settings; None for the one without a name. Raises `InputError` where there is none, or a choice."""
    if (folder / SETTINGS_NAME).exists():
        return None
    named = folder.parent.glob(f"{folder.name}-*/{SETTINGS_NAME}")
    sites = sorted(each.parent.name.removeprefix(f"{folder.name}-") for each in named)
    if len(sites) == 1:
        return sites[0]
    if not sites:
        raise InputError(f"There are no settings: neither {folder / SETTINGS_NAME} nor {folder}-<site>/{SETTINGS_NAME}.")
    raise InputError(f"There are several sites: name one with --site ({', '.join(sites)}).")


def _find_settings(unit: str, service: Service) -> Path:
    settings = settings_file(service)
    if settings is None:
        raise InputError(f"The unit {unit} names no settings: its ExecStart has no --config.")
    if not settings.exists():
        raise InputError(f"There are no settings {settings}, which the unit {unit} names.")
    return settings


def build_command(
    unit: str, service: Service, words: Sequence[str], environment: Mapping[str, str], *, is_terminal: bool
) -> list[str]:
    """The `systemd-run` that runs `lab-agent WORDS` as the unit. Raises `InputError` where the unit has no settings."""
    settings = _find_settings(unit, service)
    person = environment.get("SUDO_USER") or "root"
    variables = {"LAB_AGENT_CONFIG": str(settings), "SUDO_USER": person, "TERM": environment.get("TERM", "dumb")}
    run = ["systemd-run", "--quiet", "--wait", "--collect", "--pty" if is_terminal else "--pipe", "--service-type=exec"]
    run += [f"--property={name}={value}" for name, values in service.items() if name in _PASSED_ON for value in values]
    run += [f"--setenv={name}={value}" for name, value in variables.items()]
    return [*run, "--", _program(), *words]


def _complete() -> None:
    """Let `lab-agent` say what may follow, as a shell asks: that needs no unit. The site is none of its words."""
    asked = {name: without_site(os.environ[name]) for name in _ASKED if name in os.environ}
    gone = sum(len(os.environ[name].split()) - len(words.split()) for name, words in asked.items())
    place = {"COMP_CWORD": str(int(os.environ["COMP_CWORD"]) - gone)} if "COMP_CWORD" in os.environ else {}
    program = _program()
    os.execve(program, [program], {**os.environ, **asked, **place})  # noqa: S606 - this process is the command from here on


def without_site(words: str) -> str:
    """What a shell asks about, without a `--site` that stands first."""
    return _SITE_WORDS.sub(r"\1", words)


def _program() -> str:
    return str(Path(sys.executable).with_name("lab-agent"))


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
