"""What a rehearsed day is made of: baskets, second barcodes, and results that use the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from lab_agent.catalogue.labels import NoLabels, old_order_pattern
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.lis.testing.samples import make_order
from lab_agent.rehearsal.made_orders import OrderMaker, OrderUnit, list_units, plan_baskets
from lab_agent.rehearsal.made_results import ResultMaker
from lab_agent.results.code_translation import missing_mappings
from lab_agent.results.mapping_loader import load_mapping_tables
from lab_agent.results.mapping_tables import LOINC, MappingTables
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.label_pools import IdentifierPattern
from lab_agent.shared.values import Coding
from tests.harness.paths import CATALOGUE, MAPPINGS

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


def test_no_two_orders_have_one_second_barcode() -> None:
    """Two patients with one barcode would be held; where a pattern has no more of them, orders are made all the same."""
    tables = read_tables(CATALOGUE)
    maker = OrderMaker(
        catalogue=build_catalogue(tables, content_version(tables)),
        systems=CodeSystems(base_url="https://exchange.example/api/", lab_codes_url="https://codes.example"),
        laboratory="00000000-0000-4000-8000-000000000001",
        counterparties={},
        labels=NoLabels(),
        rng=Random(1),
    )
    drawn = [maker.next_second_label(IdentifierPattern("0-0")) for _ in range(101)]
    assert sorted(drawn[:100]) == [f"{first}-{second}" for first in range(10) for second in range(10)]
    assert drawn[100] in drawn[:100]


def test_every_row_of_the_tables_is_used_and_nothing_else() -> None:
    tables = load_mapping_tables(MAPPINGS)
    maker = ResultMaker(tables, Random(1))
    reports = [maker.make(make_order(seed), NOW) for seed in range(200)]
    assert not [each for report in reports for each in missing_mappings(report, tables)]
    observed = [each for report in reports for each in report.observations]
    codes = {each.code.code for each in observed}
    units = {each.value_quantity.unit for each in observed if each.value_quantity}
    answers = {coding.code for each in observed if each.value_codeable_concept for coding in each.value_codeable_concept.coding}
    assert {code for _, code in tables.codes or {}} <= codes
    assert units == set(tables.units or {})
    assert answers == {code for _, _, code in tables.answers or {}}


def test_code_of_the_catalogue_without_a_row_is_noted_and_not_reported() -> None:
    tables = MappingTables(codes={(None, "HGB"): Coding(system=LOINC, code="718-7")})
    maker = ResultMaker(tables, Random(1))
    order = make_order(1)
    report = maker.make(order, NOW)
    assert {each.code.code for each in report.observations} == {"HGB"}
    assert maker.unmapped == {line.lab_code: line.item for line in order.lines if line.lab_code and line.lab_code != "HGB"}
