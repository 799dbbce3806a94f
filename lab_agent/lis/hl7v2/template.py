"""Templates of fields: `{patient.family}^{patient.given}`. What stands in braces is escaped, everything else is HL7 as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lab_agent.lis.hl7v2.escapes import STANDARD_SEPARATORS, escape

_PLACEHOLDER = re.compile(r"\{([a-z_]+\.[a-z_]+)(?:\|([a-z_]+))?\}")


class EncodedText(str):
    """A word that is HL7 already, separators included."""

    __slots__ = ()


TemplateValue = str | tuple[str, ...] | None
TemplateValues = Mapping[str, TemplateValue]
LookupTables = Mapping[str, Mapping[str, str]]


def find_placeholders(template: str) -> Iterator[tuple[str, str | None]]:
    """Give the words of a template, each with its table if it has one."""
    return ((found[1], found[2]) for found in _PLACEHOLDER.finditer(template))


def render_field(template: str, values: TemplateValues, tables: LookupTables) -> str:
    """Write one field; a list among its words gives one repetition for each entry."""
    used = [values.get(word) for word, _ in find_placeholders(template)]
    lengths = [len(word) for word in used if isinstance(word, tuple)]
    count = max(lengths) if lengths else 1
    repetitions = (_render_repetition(template, values, tables, index) for index in range(count))
    return STANDARD_SEPARATORS.repetition.join(repetitions).rstrip(STANDARD_SEPARATORS.repetition)


def has_content(fields: Mapping[int, str], values: TemplateValues) -> bool:
    """Whether a segment of these fields holds more than constants and numbers, or consists of constants alone."""
    used = {word for template in fields.values() for word, _ in find_placeholders(template) if not word.endswith(".n")}
    return not used or any(values.get(word) for word in used)


def _render_repetition(template: str, values: TemplateValues, tables: LookupTables, index: int) -> str:
    said = False

    def put(found: re.Match[str]) -> str:
        nonlocal said
        text = _value_at(values.get(found[1]), index)
        if not text:
            return ""
        said = True
        if found[2]:
            return escape(tables.get(found[2], {}).get(text, text))
        return text if isinstance(text, EncodedText) else escape(text)

    rendered = _PLACEHOLDER.sub(put, template)
    if not said and any(True for _ in find_placeholders(template)):
        return ""  # constants beside words that say nothing would be noise, such as ^^^L
    return _strip_trailing_separators(rendered)


def _value_at(value: TemplateValue, index: int) -> str | None:
    if isinstance(value, tuple):
        return value[index] if index < len(value) else None
    return value


def _strip_trailing_separators(field: str) -> str:
    return field.rstrip(STANDARD_SEPARATORS.component + STANDARD_SEPARATORS.subcomponent)
