"""`docs/commands.md`, made of the commands themselves.

`python -m tools.docs.commands` prints the page; a test holds the file against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from lab_agent.cli.app import app
from lab_agent.cli.lazy_commands import load_command

_COMMANDS_HEADER = """# Commands of lab-agent

<!-- Made by `python -m tools.docs.commands`; a test holds this file against the program. -->

Commands that need settings read the file given by `--config PATH` or `LAB_AGENT_CONFIG` ([configuration](configuration.md)).
Lists and shows accept `--json`; piped output is neither coloured nor wrapped. Exit codes: 0 for success, 1 for an error (one
sentence on standard error), 2 for wrong usage. `lab-agent --help` lists the commands of every day, with `--all` every one.
"""


def commands_page() -> str:
    """The whole page."""
    return "\n".join([_COMMANDS_HEADER, *_command_sections(typer.main.get_command(app), "lab-agent")])


def _command_sections(command: Any, name: str) -> Iterator[str]:
    command = load_command(command)
    inner = getattr(command, "documented_commands", None) or getattr(command, "commands", None)
    if inner is None:
        yield _command_section(command, name)
    else:
        for each, found in inner.items():
            if not found.hidden:
                yield from _command_sections(found, f"{name} {each}")


def _command_section(command: Any, name: str) -> str:
    places = [f" {each.metavar or each.name.upper()}" for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and each.name not in {"help", "config", "as_json"}
    ]
    rows = "".join(f"| {_option_names(each)} | {_option_help(each)} |\n" for each in options)
    table = f"\n| Option | Meaning |\n|---|---|\n{rows}" if rows else ""
    return f"## `{name}{''.join(places)}`\n\n{_collapse_whitespace(command.help)}\n{table}"


def _option_names(option: Any) -> str:
    return ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))


def _option_help(option: Any) -> str:
    variable = f" Also by `{option.envvar}`." if option.envvar else ""
    return (_collapse_whitespace(option.help) + variable).strip().replace("|", "\\|")


def _collapse_whitespace(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    sys.stdout.write(commands_page())
