"""Buttons of the pages: each says by its class how much weighs on it, and every kind can be read in both themes."""

from __future__ import annotations

import re

import pytest

from lab_agent.status.app import STATIC_FOLDER

TEMPLATES = STATIC_FOLDER.with_name("templates")
STYLE = (STATIC_FOLDER / "style.css").read_text()
ENOUGH = 4.5
"""The contrast of text that WCAG 2.2 AA asks for."""
IRREVERSIBLE = ("/remove", "/end", "/connection/forget")
PAIRS = (
    *((ink, paper) for ink in ("ink", "quiet", "accent", "bad", "warn") for paper in ("paper", "card")),
    *(("on-accent", "accent"), ("accent", "accent-paper"), ("on-bad", "bad"), ("bad", "bad-paper"), ("warn", "warn-paper")),
    *(("good", "good-paper"), ("cool", "cool-paper"), ("paper", "warn"), ("paper", "bad")),
)
"""Ink and paper of what is to be read: texts, states, and buttons of each kind, on a card and on the page."""


def colours(theme: str) -> dict[str, str]:
    start = STYLE.index(":root {" if theme == "light" else ":root[data-theme=dark]")
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", STYLE[start : STYLE.index("}", start)]))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_and_button_can_be_read(theme: str):
    found = colours(theme)
    assert [pair for pair in PAIRS if contrast(found[pair[0]], found[pair[1]]) < ENOUGH] == []


def test_dark_theme_is_the_same_by_choice_and_by_system():
    by_system = STYLE[STYLE.index(":root:not([data-theme=light])") :]
    assert dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", by_system[: by_system.index("}")])) == colours("dark")


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
