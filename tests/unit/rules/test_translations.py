"""The reasons in other languages: whole, with the rules' own words, or refused at the start with all that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from lab_agent.errors import SettingsError
from lab_agent.rules.engine import RULES, Assessment
from lab_agent.rules.translations import load_messages
from tests.harness.paths import ROOT

FOLDER = ROOT / "config" / "messages"
LANGUAGES = sorted(path.stem for path in FOLDER.glob("*.toml"))


def names(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_shipped_language_is_complete_with_all_placeholders(language: str) -> None:
    """A shipped language has every message, with every placeholder that the rules fill."""
    given = load_messages(language, FOLDER)
    assert given.keys() == {rule.id for rule in RULES}
    for rule in RULES:
        assert names(given[rule.id]) == names(rule.message), rule.id
        assert given[rule.id] != rule.message, rule.id


def test_shipped_folder_is_used_without_another() -> None:
    assert load_messages("de", None) == load_messages("de", FOLDER)


def test_at_least_one_language_is_shipped() -> None:
    assert "de" in LANGUAGES


def test_rules_use_english_without_translation_file() -> None:
    assert load_messages("en", Path("nowhere")) == {}


def test_rejection_reason_is_translated(assess_wire: Callable[..., Assessment], wire: dict[str, Any]) -> None:
    request = next(body for name, body in wire["resources"].items() if name.startswith("ProcedureRequest"))
    request["code"]["coding"][0]["code"] = "999.999"
    output = [
        each.message for each in assess_wire(wire, messages=load_messages("de", FOLDER)).findings() if each.rule == "line.item"
    ]
    assert output
    assert all("Die Untersuchung 999.999 steht nicht im Leistungsverzeichnis" in text for text in output)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"line.item" = "only this"', "order.has-lines: has no message"),
        ('"line.itme" = "x"', "unknown rule"),
        ('"line.item" = "{where} {cod}"', "unknown placeholder: cod"),
        ('"line.item" = "{where"', "is not a message"),
        ('"line.item" = 3', "is not a message"),
        ("= = =", "is not TOML"),
    ],
)
def test_invalid_translation_file_is_rejected_with_reasons(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "xx.toml").write_text(text)
    with pytest.raises(SettingsError, match=said) as caught:
        load_messages("xx", tmp_path)
    assert all(each.what and each.hint for each in caught.value.problems)
    assert all(each.where.startswith((str(tmp_path / "xx.toml"), "messages.")) for each in caught.value.problems)


def test_missing_translation_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"xx\.toml: cannot be read"):
        load_messages("xx", tmp_path)
