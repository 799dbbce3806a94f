"""Pools of barcodes: pattern, range, check digit, and which contract has which."""

from __future__ import annotations

from functools import partial

import pytest
from pydantic import ValidationError

from lab_agent.settings.api import ApiPoolSettings
from lab_agent.shared.label_pools import (
    IdentifierPattern,
    LabelPool,
    find_pool,
    find_second_label_pool,
    gs1_check_digit,
    luhn_check_digit,
)


def test_check_digits_match_published_numbers() -> None:
    assert luhn_check_digit([int(each) for each in "7992739871"]) == 3
    assert gs1_check_digit([int(each) for each in "400638133393"]) == 1
    assert gs1_check_digit([int(each) for each in "03600029145"]) == 2
    assert luhn_check_digit([9]) == 1
    assert luhn_check_digit([5, 0]) == 5
    assert luhn_check_digit([5]) == 9
    assert (luhn_check_digit([]), gs1_check_digit([])) == (0, 0)


def test_pattern_matches_digits_and_letters() -> None:
    right = {"X": "aZ7", "0": "7"}
    assert all(IdentifierPattern(pattern).matches(value) for pattern, values in right.items() for value in values)
    assert IdentifierPattern("0.0").matches("1.2")
    wrong = (("X", "ä"), ("0", "a"), ("0", "٧"), ("0.0", "1-2"), ("00", "1"))
    assert not any(IdentifierPattern(pattern).matches(value) for pattern, value in wrong)


def test_label_follows_its_pattern() -> None:
    assert LabelPool("p", "LAB-####", 1, 9999).label(42) == "LAB-0042"
    assert LabelPool("p", "####-####", 1, 9999_9999).label(12345678) == "1234-5678"
    assert LabelPool("p", "799273987#%", 1, 9, "luhn").label(1) == "79927398713"
    assert LabelPool("p", "#%%", 1, 9, "luhn").label(1) == "18%"
    assert LabelPool("p", "%/##", 1, 99, "gs1").label(12) == f"{gs1_check_digit([1, 2])}/12"


@pytest.mark.parametrize("second", [False, True])
def test_contract_pool_preferred_over_shared_pool(second: bool) -> None:
    everybody, own, other = (
        LabelPool("p", "####-####", 1, 9, contracts=contracts, second=which)
        for contracts, which in ((None, second), (frozenset({"C-2"}), second), (None, not second))
    )
    pattern = IdentifierPattern("0000-0000")
    find = partial(find_second_label_pool, pattern=pattern) if second else find_pool
    for contract, pools, found in (
        ("C-2", (everybody, own), own),
        ("C-1", (own, everybody), everybody),
        ("C-1", (own, other), None),
    ):
        assert find(pools, contract) is found
    assert find_second_label_pool((everybody,), "C-1", IdentifierPattern("000-000-000")) is None


def test_second_pool_matches_every_barcode_shape() -> None:
    """A pool serves every shape that its barcodes have."""
    fixed = LabelPool("fixed", "9###-###%", 1, 9, "luhn", second=True)
    assert find_second_label_pool((fixed,), "C-1", IdentifierPattern("0000-0000")) is fixed
    assert find_second_label_pool((fixed,), "C-1", IdentifierPattern("X000-000X")) is fixed
    assert find_second_label_pool((fixed,), "C-1", IdentifierPattern("8000-0000")) is None


def test_issued_labels_excluded_from_range_and_counted() -> None:
    pool = LabelPool("p", "##", 10, 20)
    for given in ((), ((1, 10),), ((21, 30),), ((10, 10),)):
        assert (pool.next_number(given), pool.remaining(given)) == (10, 11)
    assert (pool.next_number(((12, 15), (5, 12))), pool.remaining(((12, 15), (5, 12)))) == (15, 6)
    assert (pool.next_number(((11, 15), (13, 14))), pool.remaining(((11, 15), (13, 14)))) == (10, 7)
    assert (pool.next_number(((10, 12), (18, 40))), pool.remaining(((10, 12), (18, 40)))) == (12, 6)
    assert (pool.next_number(((20, 22),)), pool.remaining(((20, 22),))) == (10, 10)
    assert (pool.next_number(((11, 10),)), pool.remaining(((25, 30),))) == (10, 11)
    assert pool.next_number(((10, 12), (12, 13))) == 13
    assert pool.next_number(((1, 15), (12, 99))) > pool.last
    assert pool.remaining(((1, 15), (12, 99))) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"pattern": "77"},
        {"pattern": "#", "last": 10},
        {"pattern": "##", "first": 9, "last": 8},
        {"pattern": "##%"},
        {"pattern": "##", "check_digit": "luhn"},
        {"pattern": "##%%", "check_digit": "gs1"},
        {"pattern": "## "},
    ],
)
def test_invalid_pool_rejected(wrong: dict[str, object]) -> None:
    assert ApiPoolSettings.model_validate({"name": "p", "pattern": "##", "last": 9}).last == 9
    with pytest.raises(ValidationError):
        ApiPoolSettings.model_validate({"name": "p", "pattern": "##", "last": 9, **wrong})
