"""How many rows of docs/conformance.md that name tests have a fault which those tests find; the faults are known-bad variants."""

from __future__ import annotations

import pytest

from tests.docs.test_conformance import named_tests, rows
from tests.harness.proof import Figures
from tests.proof.variants import MUTANTS
from tests.proof.variants_conformance import row_of


@pytest.mark.proof
def test_faults_are_counted_by_row(figures: Figures) -> None:
    tested = {row.number for row in rows() if named_tests(row.tests)}
    faults = [each for each in MUTANTS if each.found_by == "conformance"]
    faulty = {row_of(each) for each in faults}
    figures.add(faults=len(faults), rows_with_a_fault=len(faulty), rows_without=len(tested - faulty))
    assert faulty <= tested
