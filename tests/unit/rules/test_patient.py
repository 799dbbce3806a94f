"""Which birth dates are possible, to the day."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rules.test_rule_table import Wire, patient


@pytest.mark.parametrize(
    ("born", "is_possible"),
    [
        ("1895-12-31", False),
        ("1896-01-01", True),
        ("2026-03-02", True),
        ("2026-03-03", True),
        ("2026-03-04", False),
    ],
)
def test_birth_is_possible_in_130_years_until_tomorrow(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, born: str, is_possible: bool
) -> None:
    """Tomorrow: it may have begun already where the patient is."""
    patient(wire)["birthDate"] = born
    assert rule_outcomes(assess_wire(wire)) == ({} if is_possible else {"patient.birth-possible": "refuse"})
