from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.turnaround import Availability, Delayed, Notice, NoticePeriod, Stopped
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod

ORDERED = datetime(2026, 3, 2, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _without(catalogue: Catalogue, item: str, **changes: Any) -> Catalogue:
    contract = catalogue.contract("C-100")
    items = {key: value for key, value in contract.items.items() if key != item}
    return replace(catalogue, contracts={**catalogue.contracts, "C-100": replace(contract, items=items, **changes)})


def _noticed(catalogue: Catalogue, status: Availability) -> CatalogueHistory:
    assert isinstance(status, Stopped | Delayed)
    return CatalogueHistory.from_catalogue(replace(catalogue, notices=(Notice("001.001", status),)))


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (ORDERED + HOUR, {"line.item-withdrawn": "warn"}),
        (ORDERED - 23 * HOUR, {"line.item-withdrawn": "warn"}),
        (ORDERED - 25 * HOUR, {"line.item": "refuse"}),
    ],
)
def test_withdrawn_test_within_cache_lifetime_warns(
    wire: Any, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue, ended: datetime, found: dict[str, str]
) -> None:
    """A test that left the catalogue within one cache lifetime warns."""
    view = CatalogueHistory((VersionPeriod(_without(catalogue, "001.001")), VersionPeriod(catalogue, active_until=ended)))
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == found


def test_contract_cache_lifetime_overrides_default(wire: Any, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue) -> None:
    old = replace(
        catalogue, contracts={**catalogue.contracts, "C-100": replace(catalogue.contract("C-100"), cache_lifetime_seconds=3600)}
    )
    view = CatalogueHistory((VersionPeriod(_without(catalogue, "001.001")), VersionPeriod(old, active_until=ORDERED - 2 * HOUR)))
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == {"line.item": "refuse"}


def test_new_test_ordered_before_activation_is_accepted(wire: Any, assess_wire: Any, catalogue: Catalogue) -> None:
    """A new test may be ordered before the clock says that it is in force."""
    view = CatalogueHistory(
        (VersionPeriod(catalogue), VersionPeriod(_without(catalogue, "001.001"), active_until=ORDERED + HOUR))
    )
    assert assess_wire(wire, catalogue=view).findings() == ()


@pytest.mark.parametrize(
    ("ended", "lifetime", "found"),
    [
        (ORDERED - 23 * HOUR, None, {"order.catalogue": "hold", "line.item": "refuse"}),
        (ORDERED - 25 * HOUR, None, {"line.item": "refuse"}),
        (ORDERED - 25 * HOUR, 26 * 3600, {"order.catalogue": "hold", "line.item": "refuse"}),
    ],
)
def test_unreadable_version_possibly_offering_test_holds(
    wire: Any,
    assess_wire: Any,
    rule_outcomes: Any,
    catalogue: Catalogue,
    ended: datetime,
    lifetime: int | None,
    found: dict[str, str],
) -> None:
    """A test that an unreadable catalogue version may have offered holds the line."""
    view = CatalogueHistory(
        (VersionPeriod(_without(catalogue, "001.001", cache_lifetime_seconds=lifetime)),), unreadable_until=(ended,)
    )
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == found
    readable = CatalogueHistory((VersionPeriod(catalogue),), unreadable_until=(ended,))
    assert assess_wire(wire, catalogue=readable).findings() == ()


def test_anything_any_version_allows_is_accepted(wire: Any, assess_wire: Any, catalogue: Catalogue) -> None:
    contract = catalogue.contract("C-100")
    changed = replace(contract.items["001.001"], options=contract.items["002.001"].options)
    items = {**contract.items, "001.001": changed}
    newer = replace(catalogue, contracts={"C-100": replace(contract, items=items)})
    view = CatalogueHistory((VersionPeriod(newer), VersionPeriod(catalogue, active_until=ORDERED + HOUR)))
    assert assess_wire(wire, catalogue=view).accepted_lines == ("t1", "t2")
    refused = assess_wire(wire, catalogue=CatalogueHistory.from_catalogue(newer)).lines["t1"].rejections
    assert "specimen.type-offered" in {finding.rule for finding in refused}


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (ORDERED - HOUR, ORDERED + HOUR, {"line.stopped": "refuse"}),
        (ORDERED - HOUR, ORDERED + 9 * HOUR, {"line.stopped": "refuse"}),
        (ORDERED + HOUR, ORDERED + 9 * HOUR, {"line.stopped-since": "warn"}),
        (ORDERED - 2 * HOUR, ORDERED - HOUR, {}),
        (ORDERED + 7 * HOUR, ORDERED + 9 * HOUR, {}),
    ],
)
def test_stop_notice_applies_at_order_time(
    wire: Any, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue, start: datetime, end: datetime, found: dict[str, str]
) -> None:
    assert rule_outcomes(assess_wire(wire, catalogue=_noticed(catalogue, Stopped(NoticePeriod(start, end))))) == found


def test_delay_notice_warns(wire: Any, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue) -> None:
    period = NoticePeriod(ORDERED - HOUR, ORDERED + HOUR)
    assert rule_outcomes(assess_wire(wire, catalogue=_noticed(catalogue, Delayed(period, Decimal(48))))) == {
        "line.delayed": "warn"
    }


@pytest.mark.parametrize("view", [None, CatalogueHistory(()), "empty"])
def test_missing_catalogue_holds_and_rejects_nothing(
    wire: Any, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue, view: Any
) -> None:
    if view == "empty":
        empty = replace(catalogue.contract("C-100"), items={})
        view = CatalogueHistory.from_catalogue(replace(catalogue, contracts={"C-100": empty}))
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == {"order.catalogue": "hold"}
