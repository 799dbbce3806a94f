"""What the orders of a rehearsal are made of."""

from __future__ import annotations

from random import Random

from lab_agent.catalogue.labels import NoLabels
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.domain.code_systems import CodeSystems
from lab_agent.domain.label_pools import IdentifierPattern
from lab_agent.rehearsal.made_orders import OrderMaker
from tests.harness.paths import CATALOGUE


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
