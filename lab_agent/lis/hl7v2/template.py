"""Templates of fields: `{patient.family}^{patient.given}`. What stands in braces is escaped, everything else is HL7 as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lab_agent.lis.hl7v2.escapes import STANDARD, escape

_WORD = re.compile(r"\{([a-z_]+\.[a-z_]+)(?:\|([a-z_]+))?\}")


class Encoded(str):
    """A word that is HL7 already, separators included."""

    __slots__ = ()


Word = str | tuple[str, ...] | None
Words = Mapping[str, Word]
Tables = Mapping[str, Mapping[str, str]]


def words_in(template: str) -> Iterator[tuple[str, str | None]]:
    """Give the words of a template, each with its table if it has one."""
    return ((found[1], found[2]) for found in _WORD.finditer(template))


def render_field(template: str, words: Words, tables: Tables) -> str:
    """Write one field; a list among its words gives one repetition for each entry."""
    used = [words.get(word) for word, _ in words_in(template)]
    lengths = [len(word) for word in used if isinstance(word, tuple)]
    count = max(lengths) if lengths else 1
    repetitions = (_render_once(template, words, tables, index) for index in range(count))
    return STANDARD.repetition.join(repetitions).rstrip(STANDARD.repetition)


def says_anything(fields: Mapping[int, str], words: Words) -> bool:
    """Whether a segment of these fields holds more than constants and numbers, or consists of constants alone."""
    used = {word for template in fields.values() for word, _ in words_in(template) if not word.endswith(".n")}
    return not used or any(words.get(word) for word in used)


def _render_once(template: str, words: Words, tables: Tables, index: int) -> str:
    said = False

    def put(found: re.Match[str]) -> str:
        nonlocal said
        text = _pick(words.get(found[1]), index)
        if not text:
            return ""
        said = True
        if found[2]:
            return escape(tables.get(found[2], {}).get(text, text))
        return text if isinstance(text, Encoded) else escape(text)

    rendered = _WORD.sub(put, template)
    if not said and any(True for _ in words_in(template)):
        return ""  # constants beside words that say nothing would be noise, such as ^^^L
    return _trimmed(rendered)


def _pick(word: Word, index: int) -> str | None:
    if isinstance(word, tuple):
        return word[index] if index < len(word) else None
    return word


def _trimmed(field: str) -> str:
    return field.rstrip(STANDARD.component + STANDARD.subcomponent)
