"""Foreign words in our own sentences."""

from __future__ import annotations

from lab_agent.domain.quoting import LONGEST, quoted, several


def test_a_short_text_stays() -> None:
    assert quoted("Анализ 7") == "Анализ 7"


def test_a_long_one_is_cut_and_stands_on_one_line() -> None:
    assert quoted("a\nb") == "a?b"
    assert quoted("x" * 100_000) == "x" * LONGEST + "…"


def test_of_many_the_first_few_are_named() -> None:
    assert several("abc") == "a, b, c"
    assert several("abcdefg", "; ") == "a; b; c; d; e; and 2 more"
    assert several(()) == ""
