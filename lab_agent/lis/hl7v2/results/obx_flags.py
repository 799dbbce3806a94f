"""Abnormal flags (OBX-8): codes of HL7 table 0078 or of the map; what is neither is told and never sent as one.

`S`, `I` and `R` are susceptibilities beside an organism alone: serology writes `R` for reactive, and analysers write letters of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from lab_agent.lis.hl7v2.parser import FieldValue, Segment, escape
from lab_agent.lis.susceptibility import INTERPRETATION_SYSTEM, SUSCEPTIBILITY_CODES
from lab_agent.shared.values import Coding

AMBIGUOUS_SUSCEPTIBILITIES = frozenset({"S", "I", "R"})
"""Letters that serology and analysers use too, as `R` for reactive and `I` for indeterminate."""
_RESULTS = MappingProxyType(
    {
        "POS": "Positive",
        "NEG": "Negative",
        "DET": "Detected",
        "IND": "Indeterminate",
        "RR": "Reactive",
        "WR": "Weakly reactive",
    }
)
"""Codes that say a result by themselves."""
_AMBIGUOUS_RESULTS = MappingProxyType(
    {"ND": "Not detected", "NR": "Non-reactive", "E": "Equivocal", "<": "Off scale low", ">": "Off scale high"}
)
"""Codes that are a result where their name stands beside them, or the map has them: some write `ND` for "not done"."""
_DISPLAYS = MappingProxyType({**_RESULTS, **_AMBIGUOUS_RESULTS, **SUSCEPTIBILITY_CODES})
OFF_SCALE = frozenset({"<", ">"})
FLAG_CODES = frozenset(
    {
        *SUSCEPTIBILITY_CODES, *_RESULTS, *_AMBIGUOUS_RESULTS,
        "L", "H", "LL", "HH", "N", "A", "AA", "U", "D", "B", "W", "LU", "HU", "L<", "H>", "LX", "HX", "EX", "EXP", "UNE", "AC",
        "TOX", "CAR", "QCF", "OBX", "HM",
    }
)  # fmt: skip
"""HL7 table 0078."""
_NO_FLAG = frozenset({"null", "NULL"})
_NORMAL = "N"
_NAMES = MappingProxyType(
    {
        "low": "L",
        "high": "H",
        "critically low": "LL",
        "critical low": "LL",
        "critically high": "HH",
        "critical high": "HH",
        "normal": "N",
        "abnormal": "A",
        "critically abnormal": "AA",
        "critical abnormal": "AA",
        **{name.lower(): code for code, name in _DISPLAYS.items()},
    }
)


def rename_flags(obx: Segment, table: Mapping[str, str]) -> str:
    """OBX-8 with what the LIS writes replaced by `[tables.flags]`; a flag that says nothing is left out."""
    mark = obx.separators.component
    kept: list[str] = []
    for value in obx.repetitions(8):
        code = value.component_text(1).strip()
        given = code or _name(value)
        meant = table.get(given, table.get(given.upper()))
        if meant is None:
            kept.append(value.raw)
        elif meant:
            kept.append(mark.join((escape(meant, obx.separators), *value.raw.split(mark)[1:])))
    return obx.separators.repetition.join(kept)


def propose_flag(text: str) -> str | None:
    """The code of table 0078 that a text in OBX-8 is for certain: its name, or a code in other letters; None if none is."""
    code = _NAMES.get(text.lower()) or text.upper()
    return code if code in FLAG_CODES - AMBIGUOUS_SUSCEPTIBILITIES - {*_AMBIGUOUS_RESULTS} else None


def read_flags(obx: Segment, *, has_organism: bool, table: Mapping[str, str]) -> tuple[str, ...]:
    """The codes of table 0078 in OBX-8; `S`, `I` and `R` where they are susceptibilities, also by their name or the map."""
    return tuple(code for code, _ in _coded(obx, has_organism=has_organism, table=table) if code)


def unknown_flags(obx: Segment, *, has_organism: bool, table: Mapping[str, str]) -> tuple[str, ...]:
    """What stands in OBX-8 and is neither a code of the table nor its name nor in the map: a person must read it."""
    return tuple(text for code, text in _coded(obx, has_organism=has_organism, table=table) if not code)


def flag_result(obx: Segment, *, has_organism: bool, table: Mapping[str, str]) -> Coding | None:
    """The result that OBX-8 alone says, such as `POS`; None if nothing, or nothing for certain, or two things at once."""
    found: set[str] = set()
    for value in obx.repetitions(8):
        code, name = value.component_text(1).strip(), _NAMES.get(_name(value).lower(), "")
        is_named = bool(name) and code.upper() in {"", name}
        sure = {name} if is_named else {code} & {*_RESULTS, *table.values()}
        found |= {one for one in sure if one in _DISPLAYS}
        if has_organism and code.upper() in SUSCEPTIBILITY_CODES:
            found.add(code.upper())
    if len(found) != 1:
        return None
    [code] = found
    return Coding(system=INTERPRETATION_SYSTEM, code=code, display=_DISPLAYS[code])


def has_speaking_flag(obx: Segment) -> bool:
    """Whether OBX-8 says more than that all is normal: beside an empty value it may be the result."""
    said = (value.component_text(1).strip() or _name(value) for value in obx.repetitions(8))
    return any(text not in {"", _NORMAL, *_NO_FLAG} and _NAMES.get(text.lower()) != _NORMAL for text in said)


def _coded(obx: Segment, *, has_organism: bool, table: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each flag as a code, empty where it is none, and as it stands there."""
    for value in obx.repetitions(8):
        code, name = value.component_text(1).strip(), _name(value)
        if code in _NO_FLAG or not (code or name):
            continue
        known = _NAMES.get(name.lower(), "")
        susceptibility = code.upper() if code.upper() in SUSCEPTIBILITY_CODES else ""
        if known and code.upper() in {"", known}:
            yield known, name
        elif susceptibility:
            is_sure = has_organism or susceptibility not in AMBIGUOUS_SUSCEPTIBILITIES or susceptibility in table.values()
            yield susceptibility if is_sure else "", code
        else:
            yield code if code in FLAG_CODES else "", code or name


def _name(value: FieldValue) -> str:
    return next((text for number in (2, 9, 5) if (text := value.component_text(number).strip())), "")
