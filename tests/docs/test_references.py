"""The pages against the program: links lead somewhere; commands, settings, units, modules and metrics that they name exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.settings.root import Settings
from tests.docs import documented
from tests.harness.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "systemd" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUPS = "|".join(Settings.model_fields)
MAP_PAGES = {"adapters-hl7v2.md", "dialects.md"}
"""Their TOML is of maps, which the tests of dialects read."""
OTHER_TABLES = {"project"}
"""Tables of other programs' files."""
METRIC_SOURCES = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("lab_agent/metrics.py", "lab_api/metrics.py"))
of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")


@of_each_page
def test_links_lead_to_existing_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" not in target:
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name} links to {target}"
            if anchor and path.suffix == ".md":
                assert anchor in documented.headings(path.read_text(encoding="utf-8")), f"{page.name} links to {target}#{anchor}"


@of_each_page
def test_documented_settings_exist(page: Path) -> None:
    text = re.sub(r"alert `[^`]*`(?:, `[^`]*`)*", "", page.read_text(encoding="utf-8"))  # keys of alerts look like settings
    named = [*re.findall(rf"`((?:{GROUPS})\.[a-z_.]+)`", text), *documented.variables(text)]
    if page.name not in MAP_PAGES:
        tables = [tomllib.loads(block) for block in documented.blocks(text, "toml")]
        named += [name for table in tables if not OTHER_TABLES & set(table) for name in documented.flatten(table)]
    known = {*ConditionId, "config", "rules.md"}
    unknown = [name for name in named if not documented.is_setting(name) and name not in known]
    assert unknown == [], page.name


@of_each_page
def test_documented_commands_exist(page: Path) -> None:
    """Those of conditions.md are parsed whole, too (test_conditions_page)."""
    found = [(line, documented.find_wrong_words(line)) for line in documented.command_lines(page.read_text(encoding="utf-8"))]
    assert [f"{' '.join(line)}: {', '.join(wrong)}" for line, wrong in found if wrong] == [], page.name


@of_each_page
def test_documented_units_exist(page: Path) -> None:
    names = set(documented.unit_names(page.read_text(encoding="utf-8")))
    assert [name for name in sorted(names) if not (ROOT / "systemd" / name).exists()] == [], page.name


@of_each_page
def test_documented_metrics_exist(page: Path) -> None:
    named = set(re.findall(r"`(lab_(?:agent|api)_[a-z_]+)`", page.read_text(encoding="utf-8")))
    short = {name: re.sub(r"^lab_(agent|api)_|_(total|info)$", "", name) for name in named}
    assert [name for name, each in sorted(short.items()) if each not in METRIC_SOURCES] == [], page.name


@pytest.mark.parametrize(
    "line",
    [
        "`lab-agent orders shwo KEY`",
        "`lab-agent orders list --cuase x`",
        "`lab-agent backup -x`",
        "```sh\nsudo LAB=1 /opt/lab-agent/bin/lab-api server\n```",
        "```sh\ntrue && lab-agentctl --site stage db updgrade\n```",
        "    lab-sandbox run --prot 80",
        "`make demmo`",
        "`make demo ONC=1`",
    ],
)
def test_wrong_command_is_noticed(line: str) -> None:
    assert any(documented.find_wrong_words(words) for words in documented.command_lines(f"{line}\n"))


@pytest.mark.parametrize(
    "line",
    ["`lab-agent orders show KEY`", "`make demo ONCE=1 LIS=hl7v2`", "`lab-agentctl --site stage check --files`", "`lab-agent …`"],
)
def test_right_command_is_found(line: str) -> None:
    assert [documented.find_wrong_words(words) for words in documented.command_lines(line)] == [[]]


def test_wrong_names_are_noticed() -> None:
    assert list(documented.unit_names("`lab-agent-bakcup@stage.timer`")) == ["lab-agent-bakcup@.timer"]
    assert [documented.is_setting(name) for name in ("store.url", "store.ulr", "lis.mine.anything")] == [True, False, True]
    assert list(documented.variables("LAB_AGENT_STORE__URL")) == ["store.url"]
    assert list(documented.flatten({"a": [{"b": 1}]})) == ["a", "a.b"]
    assert documented.headings("# One `two`: three\n```sh\n# no\n```\n") == {"one-two-three"}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_documented_modules_exist(page: Path) -> None:
    """A page names a module by its path, from the repository or from `lab_agent`."""
    for name in re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`", page.read_text()):
        assert (ROOT / name).exists() or (ROOT / "lab_agent" / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("package", sorted(path.parent.name for path in (ROOT / "lab_agent").glob("*/__init__.py")))
def test_architecture_map_lists_package(package: str) -> None:
    assert f"`{package}/`" in (ROOT / "docs" / "architecture.md").read_text()
