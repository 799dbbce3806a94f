"""What a record of the rules has where nobody gives it, and the values of its codes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lab_agent.rules import catalogue_history, context, engine, rule
from tests.harness.field_defaults import other_defaults, records_of

RECORDS = records_of(catalogue_history, context, engine, rule)
OTHER_DEFAULTS: dict[type[Any], dict[str, Any]] = {
    catalogue_history.CatalogueHistory: {"cache_lifetime": timedelta(days=1)},
    context.Facts: {
        "label_pattern": r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}",
        "future_tolerance": timedelta(minutes=15),
        "alignment_tolerance": timedelta(minutes=15),
        "clock_tolerance": timedelta(minutes=2),
    },
}


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: each.__name__)
def test_missing_field_is_none_or_as_listed(record: type[Any]) -> None:
    assert other_defaults(record) == OTHER_DEFAULTS.get(record, {})


def test_severities_stay_as_in_settings() -> None:
    assert [each.value for each in rule.Severity] == ["refuse", "hold", "warn", "off"]
