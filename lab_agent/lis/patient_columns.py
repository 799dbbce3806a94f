"""Whose result it is as plain text fields (columns of a table or of a CSV file), turned into the published JSON form.

It is read as it is written in many ways: a sex as a letter, a word or a digit (ISO/IEC 5218), a birth date as ISO 8601, as
`29.02.1980` or `19800229`. What nobody can read is left as it is for `load_message` to name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PATIENT_FIELDS = ("patient_family", "patient_given", "patient_birth_date", "patient_sex", "patient_id", "patient_id_system")
"""The names of the fields."""

_GENDERS = {
    **dict.fromkeys(("male", "m", "man", "1", "м", "муж", "мужской", "männlich"), "male"),
    **dict.fromkeys(("female", "f", "w", "woman", "2", "ж", "жен", "женский", "weiblich"), "female"),
    **dict.fromkeys(("other", "o", "d", "x", "divers"), "other"),
    **dict.fromkeys(("unknown", "u", "n", "a", "0", "9", "-", "?"), "unknown"),
}
_DAY_FIRST = re.compile(r"(\d\d)\.(\d\d)\.(\d{4})", re.ASCII)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)
_MIDNIGHT = re.compile(r"[T ]00:00(:00(\.0+)?)?$", re.ASCII)


def to_patient(fields: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Return the patient as JSON; None where the fields name none."""
    given = {name: text.strip() for name in PATIENT_FIELDS if (text := fields.get(name)) and text.strip()}
    identifier = {"system": given.get("patient_id_system"), "value": given.get("patient_id")}
    tree = {
        "family": given.get("patient_family"),
        "given": [given["patient_given"]] if "patient_given" in given else None,
        "birth_date": _to_iso(given["patient_birth_date"]) if "patient_birth_date" in given else None,
        "gender": _to_gender(given["patient_sex"]) if "patient_sex" in given else None,
        "identifiers": [{name: text for name, text in identifier.items() if text}] if "patient_id" in given else None,
    }
    return {name: item for name, item in tree.items() if item is not None} or None


def _to_gender(text: str) -> str:
    return _GENDERS.get(text.casefold().rstrip("."), text)


def _to_iso(text: str) -> str:
    """A date with the year first; a time of midnight, which some drivers add to a day, is left out."""
    text = _MIDNIGHT.sub("", text)
    if found := _DAY_FIRST.fullmatch(text):
        return f"{found[3]}-{found[2]}-{found[1]}"
    if found := _COMPACT.fullmatch(text):
        return f"{found[1]}-{found[2]}-{found[3]}"
    return text
