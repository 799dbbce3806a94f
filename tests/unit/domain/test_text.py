"""Foreign words in our own sentences."""

from __future__ import annotations

import pytest

from lab_agent.domain.text import MAX_LENGTH, escape_unprintable, join_limited, shorten


def test_short_text_stays() -> None:
    assert shorten("Анализ 7") == "Анализ 7"


def test_long_text_shortened_to_one_line() -> None:
    assert shorten("a\nb") == "a?b"
    assert shorten("x" * 100_000) == "x" * MAX_LENGTH + "…"


def test_long_list_shows_first_few() -> None:
    assert join_limited("abc") == "a, b, c"
    assert join_limited("abcdefg", "; ") == "a; b; c; d; e; and 2 more"
    assert join_limited(()) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ё 😀\n\t", "plain ё 😀\n\t"),
        ("\x1b]0;x\x07", "\\u001b]0;x\\u0007"),
        ("\x9b2J\r", "\\u009b2J\\u000d"),
        ("\u202eabc\u2069\u200f", "\\u202eabc\\u2069\\u200f"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_unprintable_characters_become_escapes(text: str, shown: str) -> None:
    assert escape_unprintable(text) == shown
