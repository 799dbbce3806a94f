"""What a record of the catalogue has where nobody gives it, and the values of its codes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lab_agent.catalogue import (
    basket,
    basket_errors,
    bin_packing,
    labels,
    model,
    questionnaire,
    specimen_choice,
    supporting_info,
    tubes,
    turnaround,
)
from tests.harness.field_defaults import other_defaults, records_of

RECORDS = records_of(
    basket,
    basket_errors,
    bin_packing,
    labels,
    model,
    questionnaire,
    specimen_choice,
    supporting_info,
    tubes,
    turnaround,
)
OTHER_DEFAULTS: dict[type[Any], dict[str, Any]] = {
    basket_errors.BasketProblem: {"code": "invalid"},
    basket_errors.BasketProblems: {"collected": []},
    bin_packing.ExactPacker: {"_known_failures": {}},
    model.Container: {"dead_volume": Decimal(0)},
}


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: each.__name__)
def test_missing_field_is_none_or_as_listed(record: type[Any]) -> None:
    assert other_defaults(record) == OTHER_DEFAULTS.get(record, {})


def test_types_of_questions_stay_as_published() -> None:
    assert [each.value for each in model.QuestionType] == ["group", "string", "choice"]
