"""Made-up results use every row of the mapping tables, and nothing that they lack."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from lab_agent.domain.values import Coding
from lab_agent.lis.testing.samples import make_order
from lab_agent.mappings.loader import load_mapping_tables
from lab_agent.mappings.tables import LOINC, MappingTables
from lab_agent.mappings.translator import missing_mappings
from lab_agent.rehearsal.made_results import ResultMaker
from tests.harness.paths import MAPPINGS

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)


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


def test_laboratory_without_tables_reports_loinc() -> None:
    report = ResultMaker(MappingTables(), Random(1)).make(make_order(1), NOW)
    assert not missing_mappings(report, MappingTables())
