"""The pages against the program: links lead somewhere; commands, settings, units, modules and metrics that they name exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from lab_agent.settings.root import Settings
from lab_agent.shared.conditions.model import ConditionId
from tests.docs import documented
from tests.harness.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "systemd" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUPS = "|".join(Settings.model_fields)
MAP_PAGES = {"adapters-hl7v2.md", "dialects.md"}
"""Their TOML is of maps, which the tests of dialects read."""
OTHER_TABLES = {"project"}
"""Tables of other programs' files."""
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}


def test_links_lead_to_existing_headings() -> None:
    wrong = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
            path = page.parent / target if target else page
            if "://" not in target and not path.exists():
                wrong.append(f"{page.name}: {target}")
            elif "://" not in target and anchor and path.suffix == ".md":
                found = documented.headings(path.read_text(encoding="utf-8"))
                wrong += [] if anchor in found else [f"{page.name}: {target}#{anchor}"]
    assert wrong == []


def test_documented_settings_exist() -> None:
    wrong, known = [], {*ConditionId, "config", "rules.md"}
    for page, whole in TEXTS.items():
        text = re.sub(r"alert `[^`]*`(?:, `[^`]*`)*", "", whole)  # keys of alerts look like settings
        named = [*re.findall(rf"`((?:{GROUPS})\.[a-z_.]+)`", text), *documented.variables(text)]
        if Path(page).name not in MAP_PAGES:
            tables = [tomllib.loads(block) for block in documented.blocks(text, "toml")]
            named += [name for table in tables if not OTHER_TABLES & set(table) for name in documented.flatten(table)]
        wrong += [f"{page}: {name}" for name in named if not documented.is_setting(name) and name not in known]
    assert wrong == []


def test_documented_commands_exist() -> None:
    """Those of conditions.md are parsed whole, too (test_generated_pages)."""
    wrong = []
    for page, text in TEXTS.items():
        found = [(line, documented.find_wrong_words(line)) for line in documented.command_lines(text)]
        wrong += [f"{page}: {' '.join(line)}: {', '.join(words)}" for line, words in found if words]
    assert wrong == []


def test_documented_units_exist() -> None:
    named = {(page, name) for page, text in TEXTS.items() for name in documented.unit_names(text)}
    assert sorted(each for each in named if not (ROOT / "systemd" / each[1]).exists()) == []


def test_documented_metrics_exist() -> None:
    sources = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("lab_agent/shared/metrics.py", "lab_api/metrics.py"))
    named = {(page, name) for page, text in TEXTS.items() for name in re.findall(r"`(lab_(?:agent|api)_[a-z_]+)`", text)}
    assert sorted(each for each in named if re.sub(r"^lab_(agent|api)_|_(total|info)$", "", each[1]) not in sources) == []


def test_documented_modules_exist() -> None:
    """By their paths, from the repository or from `lab_agent`; and the map of the architecture has every package."""
    texts = TEXTS | {"CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}
    named = {
        (page, name) for page, text in texts.items() for name in re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`", text)
    }
    assert sorted(each for each in named if not ((ROOT / each[1]).exists() or (ROOT / "lab_agent" / each[1]).exists())) == []
    packages = [path.parent.name for path in (ROOT / "lab_agent").glob("*/__init__.py")]
    assert [each for each in packages if f"`{each}/`" not in TEXTS["docs/architecture.md"]] == []
