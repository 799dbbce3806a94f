"""docs/commands.md against the commands."""

import typer

from lab_agent.cli.app import app
from lab_agent.cli.lazy_commands import load_command
from lab_api.cli import app as api_app
from tests.harness.paths import ROOT
from tools.docs.commands import commands_page

PAGE = ROOT / "docs" / "commands.md"


def leaves(command, name=""):
    for each, lazy in getattr(command, "commands", {}).items():
        found = load_command(lazy)
        yield from leaves(found, f"{name} {each}") if hasattr(found, "commands") else [(f"{name} {each}".strip(), found)]


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_commands_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == commands_page(), "run: python -m tools.docs.commands > docs/commands.md"


def test_every_command_and_option_has_help():
    silent = [name for name, command in COMMANDS.items() if not command.help]
    silent += [
        f"{name} {option.opts[0]}"
        for name, command in COMMANDS.items()
        for option in command.params
        if option.param_type_name == "option" and not option.help
    ]
    assert silent == []


def test_help_contains_no_bracket_markup():
    """No help has brackets, which a terminal takes for markup and leaves out."""
    commands = COMMANDS | dict(leaves(typer.main.get_command(api_app)))
    helps = {
        name: [command.help, *(each.help for each in command.params if each.param_type_name == "option")]
        for name, command in commands.items()
    }
    assert "new-token" in helps
    assert [name for name, texts in helps.items() if "[" in "".join(text or "" for text in texts)] == []


def test_every_list_and_show_supports_json():
    names = [name for name in COMMANDS if name.split()[-1] in {"list", "show", "rules", "check"}]
    assert len(names) >= 8
    without = [name for name in names if not any("--json" in option.opts for option in COMMANDS[name].params)]
    assert without == []
