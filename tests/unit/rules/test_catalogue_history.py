"""What the versions of the catalogue say together: all that a clinic may have seen counts, and the newest one names."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from lab_agent.catalogue.turnaround import Available, Notice, NoticePeriod, Stopped
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod
from tests.unit.rules.sample import CATALOGUE, HOUR, ORDERED, judge, outcomes, with_item, without_item

ITEMS = CATALOGUE.contract("C-100").items
NOW_WITHOUT = VersionPeriod(without_item("001.001"))


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (ORDERED + HOUR, "line.item-withdrawn=warn"),
        (ORDERED - 23 * HOUR, "line.item-withdrawn=warn"),
        (ORDERED - 25 * HOUR, "line.item=refuse"),
    ],
)
def test_withdrawn_test_within_cache_lifetime_warns(ended: datetime, found: str) -> None:
    """A test that left the catalogue within one cache lifetime warns."""
    assert outcomes(catalogue=CatalogueHistory((NOW_WITHOUT, VersionPeriod(CATALOGUE, active_until=ended)))) == found


def test_contract_cache_lifetime_overrides_default() -> None:
    short = replace(CATALOGUE.contract("C-100"), cache_lifetime_seconds=3600)
    old = VersionPeriod(replace(CATALOGUE, contracts={"C-100": short}), active_until=ORDERED - 2 * HOUR)
    assert outcomes(catalogue=CatalogueHistory((NOW_WITHOUT, old))) == "line.item=refuse"


def test_anything_any_version_allows_is_accepted() -> None:
    newer = with_item("001.001", options=ITEMS["002.001"].options)
    view = CatalogueHistory((VersionPeriod(newer), VersionPeriod(CATALOGUE, active_until=ORDERED + HOUR)))
    assert judge(catalogue=view).accepted_lines == ("t1", "t2")
    assert "specimen.type-offered" in {finding.rule for finding in judge(catalogue=newer).lines["t1"].rejections}


def test_names_of_a_test_are_those_of_the_newest_version_that_has_it() -> None:
    newest = without_item("001.001", with_item("002.001", lab_id="NEW", group="new"))
    old = with_item("002.001", with_item("001.001", lab_id="HB", group="blood"), lab_id="OLD", group="old")
    oldest = with_item("001.001", lab_id="", group="")
    view = CatalogueHistory(tuple(VersionPeriod(each) for each in (newest, old, oldest)))
    assert [view.lab_code("C-100", each) for each in ("001.001", "002.001", "nosuch")] == ["HB", "NEW", None]
    assert [view.group("C-100", each) for each in ("001.001", "002.001", "nosuch")] == ["blood", "new", None]
    named = {code: view.nomenclature_code("C-100", code) for code in ("001.001", "HB", "NEW", "OLD", "nosuch")}
    assert named == {"001.001": "001.001", "HB": "001.001", "NEW": "002.001", "OLD": "002.001", "nosuch": None}
    assert (view.lab_code("C-9", "001.001"), view.group("C-9", "001.001"), view.nomenclature_code("C-9", "HB")) == (None,) * 3
    assert CatalogueHistory((VersionPeriod(oldest),)).lab_code("C-100", "001.001") is None


def test_history_without_versions_knows_nothing() -> None:
    item, empty = ITEMS["003.010"], CatalogueHistory(())
    assert empty.availability("C-100", item, ORDERED) == Available()
    assert empty.questions((item,)) == ()
    assert empty.current_item("C-100", "003.010") is None
    assert (empty.container_types(), empty.transport_types()) == (frozenset(), frozenset())
    assert empty.cache_lifetime == 24 * HOUR


def test_newest_version_answers_what_holds_now() -> None:
    item = ITEMS["003.010"]
    view = CatalogueHistory((VersionPeriod(CATALOGUE), VersionPeriod(without_item("003.010"))))
    assert view.current_item("C-100", "003.010") == item
    assert [node.question.link_id for node in view.questions((item,))]
    withdrawn = CatalogueHistory(tuple(reversed(view.versions)))
    assert withdrawn.current_item("C-100", "003.010") is None
    assert (withdrawn.has_items_for("C-100"), withdrawn.has_items_for("C-9")) == (True, False)
    assert withdrawn.visible_items("C-100", "003.010", ORDERED) == (item,)


def test_containers_are_those_of_every_version() -> None:
    boxes = CATALOGUE.containers
    travels = {box.transport_type for box in boxes.values() if box.transport_type}
    other = replace(CATALOGUE, containers={"NEW": replace(next(iter(boxes.values())), type="NEW", transport_type="BOX")})
    view = CatalogueHistory((VersionPeriod(other), VersionPeriod(CATALOGUE)))
    assert (view.container_types(), view.transport_types()) == ({*boxes, "NEW"}, {*travels, "BOX"})


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
def test_number_has_form_of_second_barcode(value: str, items: tuple[str, ...], is_second: bool) -> None:
    view = CatalogueHistory((VersionPeriod(without_item(items[-1])), VersionPeriod(CATALOGUE)))
    assert view.is_second_label("C-100", items, value) is is_second
    assert not view.is_second_label("C-9", items, value)


def test_body_site_is_that_of_the_tube() -> None:
    view = CatalogueHistory.from_catalogue(CATALOGUE)
    assert (view.body_site("specimen=10,site=EAR"), view.body_site("specimen=10")) == ("EAR", None)


@pytest.mark.parametrize(("before", "seen"), [(23, True), (24, False), (25, False)])
def test_ended_or_unreadable_version_counts_for_one_cache_lifetime(before: int, seen: bool) -> None:
    ended = ORDERED - before * HOUR
    view = CatalogueHistory((VersionPeriod(CATALOGUE),), unreadable_until=(ended,))
    assert view.may_include_unreadable("C-100", ORDERED) is seen
    assert not CatalogueHistory((VersionPeriod(CATALOGUE),)).may_include_unreadable("C-100", ORDERED)
    view = CatalogueHistory((VersionPeriod(CATALOGUE, ended),))
    assert len(view.visible_items("C-100", "001.001", ORDERED)) == seen
    assert view.visible_items("C-9", "001.001", ORDERED) == ()


def test_notice_of_a_contract_counts_for_its_items() -> None:
    stop = Stopped(NoticePeriod(ORDERED - HOUR, ORDERED + HOUR))
    view = CatalogueHistory.from_catalogue(replace(CATALOGUE, notices=(Notice("001.001", stop, "C-100"),)))
    assert view.availability("C-100", ITEMS["001.001"], ORDERED) == stop
    assert view.availability("C-200", ITEMS["001.001"], ORDERED) == Available()
