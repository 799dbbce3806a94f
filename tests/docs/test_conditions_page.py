"""The table of conditions: its page is current, and the commands, settings and pages that it names exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.routing import Match
from typer.main import get_command

from lab_agent.cli.app import app
from lab_agent.cli.lazy_commands import load_command
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import Condition
from lab_agent.conditions.table import CONDITIONS
from lab_agent.settings.root import Settings
from lab_agent.settings.status import StatusSettings
from lab_agent.status.app import create_app
from tests.docs.documented import is_setting
from tests.harness.paths import ROOT
from tools.docs.conditions import GROUPS, render_conditions_page

PAGE = ROOT / "docs" / "conditions.md"
SYSTEM_COMMANDS = {"chmod", "df", "journalctl", "ss", "systemctl", "timedatectl"}
"""Programs of any Linux machine with systemd."""
ENTRIES = [pytest.param(each, id=each.id) for each in CONDITIONS.values()]


def test_conditions_page_is_current() -> None:
    """Run `make docs` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == render_conditions_page()


def test_every_condition_has_one_entry_and_one_paragraph() -> None:
    assert set(CONDITIONS) == set(ConditionId)
    entries = [each.id for group in GROUPS.values() for each in group]
    assert sorted(entries) == sorted(ConditionId)
    text = render_conditions_page()
    assert [each for each in ConditionId if text.count(f"### `{each}`\n") != 1] == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_says_everything(entry: Condition) -> None:
    """Each has words for all that people ask; whatever is named `{subject}` says what that is, and sentences have full stops."""
    for told in (entry.title, entry.cause, entry.affects, entry.mend, entry.noticed, entry.opens, entry.ends):
        assert told.strip() == told != "", entry.id
    assert not entry.title.endswith(".")
    assert entry.mend.endswith((".", "?"))
    texts = (entry.title, entry.cause, entry.mend, entry.command, entry.page)
    assert bool(entry.subject) or not any("{subject}" in each or "{words}" in each for each in texts)
    assert entry.id not in entry.covered_by
    assert entry.covered_by <= set(ConditionId)


@pytest.mark.parametrize("entry", [each for each in ENTRIES if each.values[0].command])  # type: ignore[attr-defined]
def test_named_command_exists(entry: Condition) -> None:
    program, *words = shlex.split(entry.command.replace("{subject}", next(iter(entry.subject_words), "SUBJECT")))
    if program == "lab-agent":
        parse_command(words)
    else:
        assert program in SYSTEM_COMMANDS
    if program == "systemctl":
        assert any(Path(ROOT / "systemd").rglob(f"{words[-1]}.service"))


def parse_command(words: list[str]) -> None:
    """Parse it as the program would, without running it. Raises `click.UsageError` for what the program does not know."""
    command: Any = load_command(get_command(app))
    while getattr(command, "commands", None):
        name, *words = words
        assert name in command.commands, f"{command.name} has no {name}"
        command = load_command(command.commands[name])
    with command.make_context(command.name, list(words)):
        pass


@pytest.mark.parametrize("words", [["outbox", "retry", "--cuase", "no_right"], ["orders", "shwo", "SUBJECT"], ["orders", "show"]])
def test_wrong_command_is_noticed(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such option|has no|Missing (argument|parameter)"):
        parse_command(words)


@pytest.mark.parametrize("entry", ENTRIES)
def test_named_settings_exist(entry: Condition) -> None:
    """Settings stand in backticks (`exchange.timeout`), tables in brackets ([exchange.oauth])."""
    texts = " ".join((entry.cause, entry.affects, entry.mend, entry.noticed, entry.opens, entry.ends, entry.title))
    texts = texts.replace("{subject}", "webhook")
    named = [*re.findall(r"`([a-z_]+\.[a-z_.]+)`", texts), *re.findall(r"\[([a-z_]+(?:\.[a-z_]+)*)\]", texts)]
    assert [name for name in named if not (name.split(".")[0] in Settings.model_fields and is_setting(name))] == []


@pytest.mark.parametrize("entry", [each for each in ENTRIES if each.values[0].page])  # type: ignore[attr-defined]
def test_named_page_exists(entry: Condition) -> None:
    context: Any = SimpleNamespace(settings=StatusSettings(), cipher=None, accounts=None, clock=None, store=None, queries=None)
    path = entry.page.replace("{subject}", "SUBJECT")
    scope = {"type": "http", "method": "GET", "path": path.partition("?")[0].partition("#")[0], "root_path": ""}
    matches = [route.matches(scope)[0] for route in create_app(context).routes if getattr(route, "path", "") != "/static"]
    assert Match.FULL in matches, f"{entry.id}: {entry.page} is no page"
