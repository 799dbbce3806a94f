"""Buttons of the pages: each says by its class how much weighs on it."""

from __future__ import annotations

import re

from lab_agent.status.app import STATIC_FOLDER

TEMPLATES = STATIC_FOLDER.with_name("templates")
STYLE = (STATIC_FOLDER / "style.css").read_text()
IRREVERSIBLE = ("/remove", "/end", "/connection/forget")


def test_dark_theme_is_the_same_by_choice_and_by_system():
    rules = [STYLE[STYLE.index(each) :].partition("}")[0] for each in (":root:not([data-theme=light])", ":root[data-theme=dark]")]
    by_system, by_choice = (re.findall(r"--([\w-]+): (#[0-9a-f]{6});", rule) for rule in rules)
    assert dict(by_system) == dict(by_choice) != {}


def test_every_button_says_how_much_weighs_on_it():
    bare = [
        f"{page.name}: {tag}"
        for page in TEMPLATES.glob("*.html")
        for tag in re.findall(r'<button[^>]*>|<a class="button[^>]*>', page.read_text())
        if not re.search(r"primary|secondary|danger|button_class", tag)
    ]
    assert bare == []


def test_what_cannot_be_undone_is_marked_as_danger():
    forms = [
        (page.name, form)
        for page in TEMPLATES.glob("*.html")
        for form in re.findall(r'<form [^>]*method="post".*?</form>', page.read_text(), re.DOTALL)
    ]
    found = [(name, form) for name, form in forms if re.search(rf'action="[^>]*({"|".join(IRREVERSIBLE)})"', form)]
    assert len(found) >= len(IRREVERSIBLE)
    assert [name for name, form in found if 'class="danger' not in form] == []


def test_dismissing_is_marked_as_danger_not_by_colour_alone():
    calls = [line for page in TEMPLATES.glob("*.html") for line in page.read_text().splitlines() if 'dismiss-note"' in line]
    assert len(calls) == 3
    assert [line for line in calls if '"danger")' not in line] == []
    assert re.search(r"button\.danger::before \{ content: \"\\26A0", STYLE)
