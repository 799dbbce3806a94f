from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.turnaround import Delayed, Notice, Period, Status, Stopped
from lab_agent.rules.catalogue_view import CatalogueView, InForce

ORDERED = datetime(2026, 3, 2, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _without(catalogue: Catalogue, item: str, **changes: Any) -> Catalogue:
    contract = catalogue.contract("C-100")
    items = {key: value for key, value in contract.items.items() if key != item}
    return replace(catalogue, contracts={**catalogue.contracts, "C-100": replace(contract, items=items, **changes)})


def _noticed(catalogue: Catalogue, status: Status) -> CatalogueView:
    assert isinstance(status, Stopped | Delayed)
    return CatalogueView.of(replace(catalogue, notices=(Notice("001.001", status),)))


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (ORDERED + HOUR, {"line.item-withdrawn": "warn"}),
        (ORDERED - 23 * HOUR, {"line.item-withdrawn": "warn"}),
        (ORDERED - 25 * HOUR, {"line.item": "refuse"}),
    ],
)
def test_a_test_withdrawn_within_one_cache_lifetime_warns(
    wire: Any, judged: Any, rules_of: Any, catalogue: Catalogue, ended: datetime, found: dict[str, str]
) -> None:
    view = CatalogueView((InForce(_without(catalogue, "001.001")), InForce(catalogue, until=ended)))
    assert rules_of(judged(wire, catalogue=view)) == found


def test_a_contract_may_have_a_cache_lifetime_of_its_own(wire: Any, judged: Any, rules_of: Any, catalogue: Catalogue) -> None:
    old = replace(
        catalogue, contracts={**catalogue.contracts, "C-100": replace(catalogue.contract("C-100"), cache_lifetime=3600)}
    )
    view = CatalogueView((InForce(_without(catalogue, "001.001")), InForce(old, until=ORDERED - 2 * HOUR)))
    assert rules_of(judged(wire, catalogue=view)) == {"line.item": "refuse"}


def test_a_new_test_may_be_ordered_before_the_clock_says_so(wire: Any, judged: Any, catalogue: Catalogue) -> None:
    view = CatalogueView((InForce(catalogue), InForce(_without(catalogue, "001.001"), until=ORDERED + HOUR)))
    assert judged(wire, catalogue=view).findings() == ()


@pytest.mark.parametrize(
    ("ended", "lifetime", "found"),
    [
        (ORDERED - 23 * HOUR, None, {"order.catalogue": "hold", "line.item": "refuse"}),
        (ORDERED - 25 * HOUR, None, {"line.item": "refuse"}),
        (ORDERED - 25 * HOUR, 26 * 3600, {"order.catalogue": "hold", "line.item": "refuse"}),
    ],
)
def test_a_test_that_an_unread_version_may_have_offered_holds(
    wire: Any, judged: Any, rules_of: Any, catalogue: Catalogue, ended: datetime, lifetime: int | None, found: dict[str, str]
) -> None:
    view = CatalogueView((InForce(_without(catalogue, "001.001", cache_lifetime=lifetime)),), unread=(ended,))
    assert rules_of(judged(wire, catalogue=view)) == found
    assert judged(wire, catalogue=CatalogueView((InForce(catalogue),), unread=(ended,))).findings() == ()


def test_what_any_version_allows_is_allowed(wire: Any, judged: Any, catalogue: Catalogue) -> None:
    contract = catalogue.contract("C-100")
    changed = replace(contract.items["001.001"], options=contract.items["002.001"].options)
    items = {**contract.items, "001.001": changed}
    newer = replace(catalogue, contracts={"C-100": replace(contract, items=items)})
    view = CatalogueView((InForce(newer), InForce(catalogue, until=ORDERED + HOUR)))
    assert judged(wire, catalogue=view).accepted == ("t1", "t2")
    refused = judged(wire, catalogue=CatalogueView.of(newer)).lines["t1"].refusals
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
def test_a_stop_counts_when_the_test_was_ordered(
    wire: Any, judged: Any, rules_of: Any, catalogue: Catalogue, start: datetime, end: datetime, found: dict[str, str]
) -> None:
    assert rules_of(judged(wire, catalogue=_noticed(catalogue, Stopped(Period(start, end))))) == found


def test_a_delay_warns(wire: Any, judged: Any, rules_of: Any, catalogue: Catalogue) -> None:
    period = Period(ORDERED - HOUR, ORDERED + HOUR)
    assert rules_of(judged(wire, catalogue=_noticed(catalogue, Delayed(period, Decimal(48))))) == {"line.delayed": "warn"}


@pytest.mark.parametrize("view", [None, CatalogueView(()), "empty"])
def test_no_catalogue_holds_and_refuses_nothing(wire: Any, judged: Any, rules_of: Any, catalogue: Catalogue, view: Any) -> None:
    if view == "empty":
        empty = replace(catalogue.contract("C-100"), items={})
        view = CatalogueView.of(replace(catalogue, contracts={"C-100": empty}))
    assert rules_of(judged(wire, catalogue=view)) == {"order.catalogue": "hold"}
