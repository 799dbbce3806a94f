"""Foreign words in our own sentences."""

from __future__ import annotations

import pytest

from lab_agent.domain.text import MAX_LENGTH, address_origin, escape_unprintable, join_limited, shorten


def test_long_text_shortened_to_one_line() -> None:
    assert (shorten("Анализ 7"), shorten("a\nb")) == ("Анализ 7", "a?b")
    assert shorten("x" * MAX_LENGTH) == "x" * MAX_LENGTH
    assert shorten("abc", 2) == "ab…"
    assert MAX_LENGTH == 80
    assert shorten("x" * 100_000) == "x" * MAX_LENGTH + "…"


def test_long_list_shows_first_few() -> None:
    assert join_limited("abc") == "a, b, c"
    assert join_limited("abcde") == "a, b, c, d, e"
    assert join_limited("abcdef") == "a, b, c, d, e, and 1 more"
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


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://user@x.example:8443/path?query#end", "https://x.example:8443"),
        (" http://x.example/path ", "http://x.example"),
        ("//x.example/path", "http://x.example"),
        ("path", "http://"),
        ("https://x.example:port/", "an address that cannot be read"),
    ],
)
def test_origin_of_an_address_names_nobody(address: str, origin: str) -> None:
    assert address_origin(address) == origin
