"""The catalogues of the status page's texts: whole, true to their placeholders, and spoken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from starlette.requests import Request

from lab_agent.settings.status import StatusSettings
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.status.translation import LANGUAGES, LOCALES_FOLDER, choose_language, gettext, speaking
from lab_agent.status.wording import mend_of, title_of
from tools.translations import CATALOGUES, read_catalogue

FOREIGN = sorted(set(LANGUAGES) - {"en"})
EACH = [FOREIGN[0], *(pytest.param(each, marks=pytest.mark.slow) for each in FOREIGN[1:])]
KEPT = re.compile(r"%\(\w+\)[sd]|\{\w+\}|`[^`]+`|</?\w+>")
"""What a translation has as its text has it: placeholders, code, elements."""


def entries(language: str, name: str) -> dict[Any, Any]:
    found = read_catalogue(LOCALES_FOLDER / language / name, language)
    return {tuple(each.id) if isinstance(each.id, list | tuple) else each.id: each.string for each in found if each.id}


def texts_of(entry: Any) -> list[str]:
    return list(entry) if isinstance(entry, tuple | list) else [entry]


@pytest.mark.parametrize("language", EACH)
def test_catalogue_has_every_text_with_its_placeholders(language: str) -> None:
    for name, texts in CATALOGUES.items():
        known = entries(language, name)
        assert set(known) == texts(), "run `python -m tools.translations`, and fill in what is empty"
        assert [text for text, translation in known.items() if not all(texts_of(translation))] == []
        wrong = []
        for text, translation in known.items():
            allowed = {frozenset(KEPT.findall(each)) for each in texts_of(text)}
            wrong += [each for each in texts_of(translation) if each and frozenset(KEPT.findall(each)) not in allowed]
        assert wrong == []


@pytest.mark.parametrize("language", EACH)
def test_conditions_are_told_in_the_language(language: str) -> None:
    since: Any = None
    for condition in CONDITIONS.values():
        told = OpenCondition(condition=condition, subject="folder", since=since)
        with speaking(language):
            assert title_of(told) != told.title, condition.id
            assert "{" not in title_of(told) + mend_of(told)


def test_english_is_the_source() -> None:
    with speaking("xx"):
        assert gettext("Orders") == "Orders"
    assert set(get_args(get_type_hints(StatusSettings)["language"])) == set(LANGUAGES)
    assert {path.name for path in LOCALES_FOLDER.iterdir() if path.is_dir()} >= set(FOREIGN)


def test_language_is_chosen() -> None:
    for header, cookie, expected in (
        ("", None, "en"),
        ("fr, it;q=0.9", None, "en"),
        ("de-AT, en;q=0.5", None, "de"),
        ("de-AT, en;q=0.5", "en", "en"),
        (",;q=,;;q=x," * 30, None, "en"),
        ("nonsense", "zz", "en"),
    ):
        request = Request({"type": "http", "headers": [(b"accept-language", header.encode())]})
        assert choose_language(request, cookie, "en") == expected, header


def test_every_template_has_its_texts_marked() -> None:
    """What stands between tags in a template is looked up, but for names, numbers and code."""
    words = re.compile(r"[A-Za-z]{3,}")
    found = []
    for file in sorted((Path(LOCALES_FOLDER).parent / "templates").glob("*.html")):
        text = re.sub(r"\{% trans .*?endtrans %\}|\{% trans %\}.*?\{% endtrans %\}", "", file.read_text(), flags=re.DOTALL)
        text = re.sub(
            r"<code>.*?</code>|<kbd>.*?</kbd>|<title>.*?</title>|\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", text, flags=re.DOTALL
        )
        text = re.sub(r"<[^<>]*>", "\n", text)
        found += [
            f"{file.name}: {line.strip()}"
            for line in text.splitlines()
            if words.search(line) and line.strip() not in {"lab agent", "1.20"}
        ]
    assert found == []
