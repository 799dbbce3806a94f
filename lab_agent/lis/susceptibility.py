"""Susceptibility of an organism to a drug, as HL7 table 0078 codes it: how microbiology is told from other flags."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from lab_agent.shared.values import Coding

INTERPRETATION_SYSTEM = "http://hl7.org/fhir/v2/0078"
SUSCEPTIBILITY_CODES = MappingProxyType(
    {
        "S": "Susceptible",
        "I": "Intermediate",
        "R": "Resistant",
        "SDD": "Susceptible-dose dependent",
        "NS": "Non-susceptible",
        "MS": "Moderately susceptible",
        "VS": "Very susceptible",
        "IE": "Insufficient evidence",
        "WT": "Wild type",
        "NWT": "Non-wild type",
        "SYN-R": "Synergy - resistant",
        "SYN-S": "Synergy - susceptible",
    }
)
"""Codes that the table has for microbiology alone; high, low and abnormal are not among them."""


def susceptibility_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of the flags that say how susceptible an organism is."""
    return tuple(flag for flag in flags if flag in SUSCEPTIBILITY_CODES)


def susceptibility_coding(flags: Iterable[str]) -> Coding | None:
    """The first susceptibility among the flags; None if there is none."""
    found = susceptibility_flags(flags)
    return Coding(system=INTERPRETATION_SYSTEM, code=found[0], display=SUSCEPTIBILITY_CODES[found[0]]) if found else None
