"""Foreign words in our own sentences."""

from __future__ import annotations

from lab_agent.domain.text import MAX_LENGTH, join_limited, shorten


def test_short_text_stays() -> None:
    assert shorten("Анализ 7") == "Анализ 7"


def test_long_text_shortened_to_one_line() -> None:
    assert shorten("a\nb") == "a?b"
    assert shorten("x" * 100_000) == "x" * MAX_LENGTH + "…"


def test_long_list_shows_first_few() -> None:
    assert join_limited("abc") == "a, b, c"
    assert join_limited("abcdefg", "; ") == "a; b; c; d; e; and 2 more"
    assert join_limited(()) == ""
