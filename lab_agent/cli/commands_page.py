"""`docs/commands.md`, made of the commands themselves.

`python -m lab_agent.cli.commands_page` prints the page; a test holds the file against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from lab_agent.cli.app import app

_HEAD = """# Commands of lab-agent

<!-- Made by `python -m lab_agent.cli.commands_page`; a test holds this file against the program. -->

Commands that read settings take `--config PATH`, or find the path in `LAB_AGENT_CONFIG` ([configuration](configuration.md)).
Lists and shows take `--json`; what is piped is neither coloured nor broken into lines. Exit codes: 0 done, 1 with one clear
sentence on standard error, 2 for wrong usage.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_commands(typer.main.get_command(app), "lab-agent")])


def _commands(command: Any, name: str) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield _section(command, name)
    else:
        for each, found in inner.items():
            yield from _commands(found, f"{name} {each}")


def _section(command: Any, name: str) -> str:
    places = [f" {each.metavar or each.name.upper()}" for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and each.name not in {"help", "config", "as_json"}
    ]
    rows = "".join(f"| {_names(each)} | {_about(each)} |\n" for each in options)
    table = f"\n| Option | Meaning |\n|---|---|\n{rows}" if rows else ""
    return f"## `{name}{''.join(places)}`\n\n{_text(command.help)}\n{table}"


def _names(option: Any) -> str:
    return ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))


def _about(option: Any) -> str:
    variable = f" Also by `{option.envvar}`." if option.envvar else ""
    return (_text(option.help) + variable).strip().replace("|", "\\|")


def _text(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    sys.stdout.write(page())
