"""Flags that say how susceptible an organism is."""

from __future__ import annotations

import pytest

from lab_agent.domain.susceptibility import SUSCEPTIBILITY_CODES, susceptibility_coding, susceptibility_flags
from lab_agent.domain.values import Coding


def test_codes_are_those_of_microbiology_with_their_displays() -> None:
    assert ", ".join(f"{code} {display}" for code, display in SUSCEPTIBILITY_CODES.items()) == (
        "S Susceptible, I Intermediate, R Resistant, SDD Susceptible-dose dependent, NS Non-susceptible, "
        "MS Moderately susceptible, VS Very susceptible, IE Insufficient evidence, WT Wild type, NWT Non-wild type, "
        "SYN-R Synergy - resistant, SYN-S Synergy - susceptible"
    )


@pytest.mark.parametrize(("flags", "found", "code"), [((), (), None), (("H", "A"), (), None), (("H", "R", "S"), ("R", "S"), "R")])
def test_first_susceptibility_is_the_coding(flags: tuple[str, ...], found: tuple[str, ...], code: str | None) -> None:
    assert susceptibility_flags(flags) == found
    expected = code and Coding(system="http://hl7.org/fhir/v2/0078", code=code, display=SUSCEPTIBILITY_CODES[code])
    assert susceptibility_coding(flags) == expected
