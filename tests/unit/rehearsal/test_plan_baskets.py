"""Baskets of a rehearsed day: every unit once, one contract each, no item twice."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from lab_agent.catalogue.labels import old_order_pattern
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.rehearsal.made_orders import OrderUnit, list_units, plan_baskets
from tests.harness.paths import CATALOGUE

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def units() -> list[OrderUnit]:
    tables = read_tables(CATALOGUE)
    catalogue: Catalogue = build_catalogue(tables, content_version(tables))
    found, stopped = list_units(catalogue, ["C-100", "C-200", "of-nobody"], NOW)
    assert found
    assert not set(stopped) & {each.item.id for each in found}
    return found


@pytest.mark.parametrize("seed", range(5))
def test_every_unit_is_ordered_in_baskets_that_the_interface_allows(units: list[OrderUnit], seed: int) -> None:
    baskets = list(plan_baskets(units, len(units), Random(seed)))
    assert len(baskets) == len(units)
    ordered = {(each.contract.code, each.item.id, each.choice and each.choice.option) for basket in baskets for each in basket}
    assert ordered == {(each.contract.code, each.item.id, each.choice and each.choice.option) for each in units}
    for basket in [*baskets, *plan_baskets(units, 300, Random(seed))]:
        items = [each.item.id for each in basket]
        assert len({each.contract.code for each in basket}) == 1
        assert len(set(items)) == len(items)
        assert len(basket) == 1 or not any(old_order_pattern(each.item) for each in basket)
