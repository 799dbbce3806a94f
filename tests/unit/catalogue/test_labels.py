"""Which baskets are the same, which tubes need a second barcode, and what a tube's supportingInfo says."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from decimal import Decimal

import pytest

from lab_agent.catalogue.basket import Basket, BasketLine
from lab_agent.catalogue.labels import (
    NoLabels,
    TubeLabels,
    basket_fingerprint,
    old_order_pattern,
    second_label_pattern,
    second_label_patterns,
)
from lab_agent.catalogue.model import Catalogue, Contract, Item, Requirement, SpecimenOption
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.supporting_info import SupportingInfo, parse_supporting_info
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.shared.label_pools import IdentifierPattern

GUID = "0123456789ABCDEF"


def requirement(item: str, code: int = 10) -> Requirement:
    return Requirement(item, SpecimenOption("", code, "Serum", "ARM", "Arm", "T5", "T5"), None, Decimal(1), "draw")


def item(id_: str, **more: object) -> Item:
    return replace(Item(id_, id_, Decimal(1), Turnaround(Decimal(1)), options=(requirement(id_),)), **more)  # type: ignore[arg-type]


def basket(*lines: BasketLine, contract: str = "C-100") -> Basket:
    return Basket(Contract(contract, "", {}), lines)


def line(id_: str = "a", guid: str | None = GUID, *chosen: Requirement) -> BasketLine:
    return BasketLine(0, item(id_), chosen or (requirement(id_),), guid)


def test_fingerprint_is_a_digest_of_the_basket() -> None:
    text = "v1\x1eC-100\x1e0123456789abcdef\x1fa\x1f10/ARM/T5\x1f11/ARM/T5"
    two = line("a", GUID, requirement("a", 11), requirement("a", 10))
    assert basket_fingerprint(basket(two), "v1") == hashlib.sha256(text.encode()).hexdigest()


def test_fingerprint_tells_baskets_apart_by_content() -> None:
    """Order and case are none; a basket without unique guids has no fingerprint."""
    one, other, found = line("a"), line("b", GUID[::-1]), basket_fingerprint(basket(line()), "v")
    assert basket_fingerprint(basket(one, other), "v") == basket_fingerprint(basket(other, one), "v")
    assert basket_fingerprint(basket(line(guid=GUID.lower())), "v") == found != basket_fingerprint(basket(line()), "w")
    for another in (basket(line("b")), basket(line(guid=GUID + "0")), basket(line(), contract="C")):
        assert basket_fingerprint(another, "v") != found
    for guid in (None, "", GUID[1:]):
        assert basket_fingerprint(basket(line(), line("b", guid)), "v") is None


@pytest.mark.parametrize(
    ("id_", "second", "old"),
    [
        ("042.036", "0000-0000", None),
        ("042.075", "0000-0000", None),
        ("042.076", "000-000-000", None),
        ("190.1558", None, "00000-XXXXX-00000000"),
        ("001", None, None),
    ],
)
def test_studies_of_the_interface_have_their_patterns(id_: str, second: str | None, old: str | None) -> None:
    assert second_label_pattern(item(id_)) == (second and IdentifierPattern(second))
    assert old_order_pattern(item(id_)) == (old and IdentifierPattern(old))


def test_pattern_of_the_catalogue_wins() -> None:
    own = IdentifierPattern("XX")
    assert second_label_pattern(item("042.036", second_label_pattern=own)) == own
    assert old_order_pattern(item("190.1558", old_order_pattern=own)) == own


def test_tube_needs_the_patterns_of_its_items() -> None:
    asked = basket(*(line(each) for each in ("042.076", "042.036", "042.075", "001")))
    (tube,) = calculate(Catalogue("1", {}, {}, {}), asked.lines).tubes
    assert list(map(str, second_label_patterns(asked, tube))) == ["000-000-000", "0000-0000"]
    assert second_label_patterns(basket(line("001")), tube) == ()


async def test_without_pools_no_tube_has_a_label() -> None:
    asked = basket(line("001"))
    tubes = calculate(Catalogue("1", {}, {}, {}), asked.lines).tubes
    assert await NoLabels().labels(asked, (*tubes, *tubes), "v") == (TubeLabels(None, ()), TubeLabels(None, ()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", SupportingInfo()),
        (" , ", SupportingInfo()),
        ("specimen=10", SupportingInfo("10")),
        ("site=ARM, time=60", SupportingInfo(None, "ARM", 60)),
        ("time=x", SupportingInfo(values=("time=x",))),
        ("time=", SupportingInfo(values=("time=",))),
        ("specimen=1,specimen=2", SupportingInfo("1")),
        ("second=1,second=2,second=", SupportingInfo(values=("second=",), second_labels=("1", "2"))),
        ("specimen", SupportingInfo("")),
        ("Specimen=1,a=b=c", SupportingInfo(values=("Specimen=1", "a=b=c"))),
        ("site=a=b", SupportingInfo(None, "a=b")),
    ],
)
def test_supporting_info_is_read_by_its_names(text: str, said: SupportingInfo) -> None:
    assert parse_supporting_info(text) == said
