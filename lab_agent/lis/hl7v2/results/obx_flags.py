"""Abnormal flags (OBX-8): codes of HL7 table 0078, or their names where a LIS sends no code."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from lab_agent.domain.susceptibility import SUSCEPTIBILITY_CODES, susceptibility_flags
from lab_agent.lis.hl7v2.parser import FieldValue, Segment

_CODES = MappingProxyType(
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
        **{name.lower(): code for code, name in SUSCEPTIBILITY_CODES.items()},
    }
)


def read_flags(obx: Segment) -> Iterator[str]:
    """The codes in OBX-8; susceptibilities in the case of their table."""
    for value in obx.repetitions(8):
        if flag := value.component_text(1).strip() or _CODES.get(_name(value).lower(), ""):
            yield flag.upper() if susceptibility_flags((flag.upper(),)) else flag


def unknown_flags(obx: Segment) -> Iterator[str]:
    """The texts in OBX-8 that stand without a code, and are no name of the table: a person must read them."""
    for value in obx.repetitions(8):
        if not value.component_text(1).strip() and (name := _name(value)) and name.lower() not in _CODES:
            yield name


def _name(value: FieldValue) -> str:
    return next((text for number in (2, 9, 5) if (text := value.component_text(number).strip())), "")
