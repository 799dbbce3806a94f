"""Foreign words in our own sentences."""

from __future__ import annotations

from lab_agent.domain.quoting import MAX_LENGTH, join_limited, shorten


def test_a_short_text_stays() -> None:
    assert shorten("Анализ 7") == "Анализ 7"


def test_a_long_one_is_cut_and_stands_on_one_line() -> None:
    assert shorten("a\nb") == "a?b"
    assert shorten("x" * 100_000) == "x" * MAX_LENGTH + "…"


def test_of_many_the_first_few_are_named() -> None:
    assert join_limited("abc") == "a, b, c"
    assert join_limited("abcdefg", "; ") == "a; b; c; d; e; and 2 more"
    assert join_limited(()) == ""
