from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.turnaround import Availability, Available, Delayed, Notice, NoticePeriod, Stopped
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod

ORDERED = datetime(2026, 3, 2, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def without_item(catalogue: Catalogue, item: str, **changes: Any) -> Catalogue:
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
    view = CatalogueHistory((VersionPeriod(without_item(catalogue, "001.001")), VersionPeriod(catalogue, active_until=ended)))
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == found


def test_contract_cache_lifetime_overrides_default(wire: Any, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue) -> None:
    old = replace(
        catalogue, contracts={**catalogue.contracts, "C-100": replace(catalogue.contract("C-100"), cache_lifetime_seconds=3600)}
    )
    view = CatalogueHistory(
        (VersionPeriod(without_item(catalogue, "001.001")), VersionPeriod(old, active_until=ORDERED - 2 * HOUR))
    )
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == {"line.item": "refuse"}


def test_new_test_ordered_before_activation_is_accepted(wire: Any, assess_wire: Any, catalogue: Catalogue) -> None:
    """A new test may be ordered before the clock says that it is in force."""
    view = CatalogueHistory(
        (VersionPeriod(catalogue), VersionPeriod(without_item(catalogue, "001.001"), active_until=ORDERED + HOUR))
    )
    assert assess_wire(wire, catalogue=view).findings() == ()


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


def with_item(catalogue: Catalogue, item: str, **changes: Any) -> Catalogue:
    """The catalogue with another test of that id in contract C-100."""
    contract = catalogue.contract("C-100")
    items = {**contract.items, item: replace(contract.items[item], **changes)}
    return replace(catalogue, contracts={**catalogue.contracts, "C-100": replace(contract, items=items)})


def test_names_of_a_test_are_those_of_the_newest_version_that_has_it(catalogue: Catalogue) -> None:
    newest = without_item(with_item(catalogue, "002.001", lab_id="NEW", group="new"), "001.001")
    old = with_item(with_item(catalogue, "001.001", lab_id="HB", group="blood"), "002.001", lab_id="OLD", group="old")
    oldest = with_item(catalogue, "001.001", lab_id="", group="")
    view = CatalogueHistory(tuple(VersionPeriod(each) for each in (newest, old, oldest)))
    assert [view.lab_code("C-100", each) for each in ("001.001", "002.001", "nosuch")] == ["HB", "NEW", None]
    assert [view.group("C-100", each) for each in ("001.001", "002.001", "nosuch")] == ["blood", "new", None]
    named = {code: view.nomenclature_code("C-100", code) for code in ("001.001", "HB", "NEW", "OLD", "nosuch")}
    assert named == {"001.001": "001.001", "HB": "001.001", "NEW": "002.001", "OLD": "002.001", "nosuch": None}
    assert (view.lab_code("C-9", "001.001"), view.group("C-9", "001.001"), view.nomenclature_code("C-9", "HB")) == (None,) * 3
    assert CatalogueHistory((VersionPeriod(oldest),)).lab_code("C-100", "001.001") is None


def test_history_without_versions_knows_nothing(catalogue: Catalogue) -> None:
    item, empty = catalogue.contract("C-100").items["003.010"], CatalogueHistory(())
    assert empty.availability("C-100", item, ORDERED) == Available()
    assert empty.questions((item,)) == ()
    assert empty.current_item("C-100", "003.010") is None
    assert (empty.container_types(), empty.transport_types()) == (frozenset(), frozenset())
    assert empty.cache_lifetime == 24 * HOUR


def test_newest_version_answers_what_holds_now(catalogue: Catalogue) -> None:
    item = catalogue.contract("C-100").items["003.010"]
    view = CatalogueHistory((VersionPeriod(catalogue), VersionPeriod(without_item(catalogue, "003.010"))))
    assert view.current_item("C-100", "003.010") == item
    assert [node.question.link_id for node in view.questions((item,))]
    withdrawn = CatalogueHistory(tuple(reversed(view.versions)))
    assert withdrawn.current_item("C-100", "003.010") is None
    assert withdrawn.has_items_for("C-100")
    assert not withdrawn.has_items_for("C-9")
    assert withdrawn.visible_items("C-100", "003.010", ORDERED) == (item,)


def test_containers_are_those_of_every_version(catalogue: Catalogue) -> None:
    boxes = catalogue.containers
    travels = {box.transport_type for box in boxes.values() if box.transport_type}
    other = replace(catalogue, containers={"NEW": replace(next(iter(boxes.values())), type="NEW", transport_type="BOX")})
    view = CatalogueHistory((VersionPeriod(other), VersionPeriod(catalogue)))
    assert view.container_types() == {*boxes, "NEW"}
    assert view.transport_types() == {*travels, "BOX"}


@pytest.mark.parametrize(
    ("value", "items", "is_second"),
    [
        ("1234-5678", ("042.036",), True),
        ("1234-5678", ("001.001", "042.036"), True),
        ("1234-5678", ("042.076",), False),
        ("123-456-789", ("042.076",), True),
        ("1234-5678", ("001.001", "nosuch"), False),
    ],
)
def test_number_has_form_of_second_barcode(catalogue: Catalogue, value: str, items: tuple[str, ...], is_second: bool) -> None:
    view = CatalogueHistory((VersionPeriod(without_item(catalogue, items[-1])), VersionPeriod(catalogue)))
    assert view.is_second_label("C-100", items, value) is is_second
    assert not view.is_second_label("C-9", items, value)


def test_body_site_is_that_of_the_tube(catalogue: Catalogue) -> None:
    view = CatalogueHistory.from_catalogue(catalogue)
    assert view.body_site("specimen=10,site=EAR") == "EAR"
    assert view.body_site("specimen=10") is None


@pytest.mark.parametrize(("before", "may"), [(23, True), (24, False), (25, False)])
def test_unreadable_version_counts_for_one_cache_lifetime(catalogue: Catalogue, before: int, may: bool) -> None:
    view = CatalogueHistory((VersionPeriod(catalogue),), unreadable_until=(ORDERED - before * HOUR,))
    assert view.may_include_unreadable("C-100", ORDERED) is may
    assert not CatalogueHistory((VersionPeriod(catalogue),)).may_include_unreadable("C-100", ORDERED)


@pytest.mark.parametrize(("before", "seen"), [(23, 1), (24, 0), (25, 0)])
def test_ended_version_is_seen_for_one_cache_lifetime(catalogue: Catalogue, before: int, seen: int) -> None:
    view = CatalogueHistory((VersionPeriod(catalogue, ORDERED - before * HOUR),))
    assert len(view.visible_items("C-100", "001.001", ORDERED)) == seen
    assert view.visible_items("C-9", "001.001", ORDERED) == ()


def test_notice_of_a_contract_counts_for_its_items(catalogue: Catalogue) -> None:
    stop = Stopped(NoticePeriod(ORDERED - HOUR, ORDERED + HOUR))
    view = CatalogueHistory.from_catalogue(replace(catalogue, notices=(Notice("001.001", stop, "C-100"),)))
    item = catalogue.contract("C-100").items["001.001"]
    assert view.availability("C-100", item, ORDERED) == stop
    assert view.availability("C-200", item, ORDERED) == Available()
