"""What all records and codes of the catalogue have in common."""

from __future__ import annotations

from decimal import Decimal

from tests.harness.field_defaults import misnamed_codes, other_defaults


def test_missing_fields_are_nothing_and_codes_named_as_their_values() -> None:
    assert other_defaults("catalogue") == {
        "BasketProblem.code": "invalid",
        "BasketProblems.collected": [],
        "ExactPacker._known_failures": {},
        "Container.dead_volume": Decimal(0),
    }
    assert misnamed_codes("catalogue") == []
