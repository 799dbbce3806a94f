"""The pages against the program: links lead somewhere, settings and commands that are named exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.main import get_command

from lab_agent.cli.app import app
from lab_agent.cli.lazy_commands import load_command
from lab_agent.conditions.ids import ConditionId
from lab_agent.settings.root import Settings
from tests.harness.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUPS = "|".join(Settings.model_fields)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_existing_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_settings_exist(page: Path) -> None:
    text = re.sub(r"alert `[^`]*`(?:, `[^`]*`)*", "", page.read_text())  # keys of alerts look like settings
    for name in re.findall(rf"`((?:{GROUPS})\.[a-z_.]+)`", text):
        assert known(name) or name in set(ConditionId), f"{page.name} names the setting {name}"


@pytest.mark.parametrize("page", [each for each in PAGES if each.name != "conditions.md"], ids=lambda page: page.name)
def test_documented_commands_exist(page: Path) -> None:
    """Those of conditions.md are parsed whole, with their options (test_conditions_page)."""
    for words in re.findall(r"(?:^|`)lab-agent ((?:[a-z][a-z0-9-]* ?)+)", page.read_text(), flags=re.MULTILINE):
        command = get_command(app)
        for word in words.split():
            commands = getattr(load_command(command), "commands", None)
            if commands is None:
                break
            any_name = getattr(load_command(command), "documented_commands", {}).get("NAME")  # `adapter NAME try`
            assert word in commands or any_name, f"{page.name} names the command lab-agent {words.strip()}"
            command = commands.get(word, any_name)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_documented_modules_exist(page: Path) -> None:
    """A page names a module by its path, from the repository or from `lab_agent`."""
    for name in re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`", page.read_text()):
        assert (ROOT / name).exists() or (ROOT / "lab_agent" / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("package", sorted(path.parent.name for path in (ROOT / "lab_agent").glob("*/__init__.py")))
def test_architecture_map_lists_package(package: str) -> None:
    assert f"`{package}/`" in (ROOT / "docs" / "architecture.md").read_text()


def known(name: str) -> bool:
    model: type[BaseModel] | None = Settings
    for part in name.split("."):
        if model is None or part not in model.model_fields:
            return model is not None and model.model_config.get("extra") == "allow"
        annotation = model.model_fields[part].annotation
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return True
