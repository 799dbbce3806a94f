"""Baskets: what is accepted leniently, and what is rejected with its position and a hint."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.catalogue import basket
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.basket_errors import BasketProblem
from lab_agent.catalogue.model import Catalogue, Container, Contract, Item, Requirement, SpecimenOption
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.errors import BasketError, UnknownContractError


def read(sample: Catalogue, *items: object, **more: object) -> Basket:
    body = {"contract": "C-100", "analyticsrequests": list(items), **more}
    return basket.read_basket(body, sample.contracts, 50)


def rejections(sample: Catalogue, *items: object, **more: object) -> list[BasketProblem]:
    with pytest.raises(BasketError) as caught:
        read(sample, *items, **more)
    assert all(isinstance(each, BasketProblem) and each.hint for each in caught.value.problems)
    return list(caught.value.problems)  # type: ignore[arg-type]


def test_plain_basket_parsed(sample: Catalogue) -> None:
    asked = read(sample, {"id": "002.001", "specimen_code": "13", "guid": "g"}, includetransportcontainer=True)
    (line,) = asked.lines
    assert (line.item.id, line.guid, line.position, asked.include_transport_containers) == ("002.001", "g", 0, True)
    assert [each.specimen_code for each in line.chosen_requirements] == ["13"]


@pytest.mark.parametrize("code", ["13", 13, " 13 "])
def test_codes_accepted_as_numbers_or_strings(sample: Catalogue, code: object) -> None:
    (line,) = read(sample, {"id": "002.001", "specimen_code": code}).lines
    assert line.chosen_requirements[0].specimen_code == "13"


def test_leading_zeros_kept(sample: Catalogue) -> None:
    (problem,) = rejections(sample, {"id": "002.001", "specimen_code": "013"})
    assert problem.where == "analyticsrequests[0].specimen_code"
    (problem,) = rejections(sample, {"id": "42.036"})
    assert "did you mean '042.036'?" in problem.hint


@pytest.mark.parametrize("nothing", [{}, {"bodysite_code": None, "container_type": None, "specimen_code": None, "guid": None}])
def test_null_means_missing_and_only_option_is_chosen(sample: Catalogue, nothing: dict[str, Any]) -> None:
    """A null field counts as missing, and an item with one specimen option needs no choice."""
    (line,) = read(sample, {"id": "002.002", **nothing}, includetransportcontainer=None).lines
    assert [each.specimen_code for each in line.chosen_requirements] == ["10"]
    assert line.guid is None


def test_variant_spelling_of_body_site_accepted(sample: Catalogue) -> None:
    (line,) = read(sample, {"id": "050.001", "bodycite_code": "EAR"}).lines
    assert line.chosen_requirements[0].option.bodysite_name == "Ear"
    read(sample, {"id": "050.001", "bodycite_code": "EAR", "bodysite_code": "EAR"})
    (problem,) = rejections(sample, {"id": "050.001", "bodycite_code": "EAR", "bodysite_code": "NOS"})
    assert problem.where == "analyticsrequests[0].bodycite_code"


def test_item_without_choice_rejects_other_specimen_type(sample: Catalogue) -> None:
    (line,) = read(sample, {"id": "002.015"}).lines
    assert line.chosen_requirements == ()
    read(sample, {"id": "002.015", "specimen_code": "21"})
    (problem,) = rejections(sample, {"id": "002.015", "specimen_code": "13"})
    assert "has no choice" in problem.what


def test_insignificant_fields_ignored(sample: Catalogue) -> None:
    (line,) = read(sample, {"id": "002.002", "bodysite_code": "ARM"}).lines
    assert line.chosen_requirements


def options(*offered: tuple[int, str | None, str | None]) -> Catalogue:
    """A catalogue of one item with these options: type, body site, container."""
    made = []
    for code, site, vessel in offered:
        option = SpecimenOption("", code, "", site, "", vessel, "")
        made.append(Requirement("i", option, Container(vessel, "", "") if vessel else None, Decimal(1), "m"))
    item = Item("i", "i", Decimal(1), Turnaround(Decimal(1)), options=tuple(made))
    return Catalogue("v", {"C-100": Contract("C-100", "", {"i": item})}, {}, {})


ONE, ANY = {"specimen_code": 1}, (1, None, None)
AX, AY, BX, BY = (1, "A", "X"), (1, "A", "Y"), (1, "B", "X"), (1, "B", "Y")


@pytest.mark.parametrize(
    ("offered", "wish", "meant"),
    [
        ((AX, BY), {"container_type": "X"}, AX),
        ((AX, BY), {"container_type": "Y", **ONE}, BY),
        ((AX, BY), {"bodysite_code": "B"}, BY),
        ((AX, AY, BX), {"container_type": "Y"}, AY),
        ((AX, AY, BX), {"bodysite_code": "B"}, BX),
        ((AX, (2, "B", "Y")), {"container_type": "Y"}, (2, "B", "Y")),
        ((AX, (2, "B", "X")), {"bodysite_code": "B"}, (2, "B", "X")),
        ((AX, (2, None, None)), {"bodysite_code": "A"}, AX),
        (((1, None, "X"), BY), {}, (1, None, "X")),
        (((1, None, "X"), BY), {"container_type": "Y"}, BY),
        ((ANY, BX), {"container_type": "Z"}, ANY),
        ((ANY, BX), {"container_type": "X"}, BX),
    ],
)
def test_specimen_choice_narrowed_by_all_given_fields(offered: Any, wish: dict[str, Any], meant: Any) -> None:
    """What is given narrows the choice together."""
    (chosen,) = read(options(*offered), {"id": "i", **wish}).lines[0].chosen_requirements
    assert (chosen.option.specimen_code, chosen.option.bodysite_code, chosen.option.container_type) == meant


@pytest.mark.parametrize(
    ("offered", "wish", "where", "code"),
    [
        ((AX, BY), {}, "bodysite_code", "required"),
        ((AX, BX, BY), {"container_type": "X"}, "bodysite_code", "required"),
        ((AX, AY, BX), {"bodysite_code": "A"}, "container_type", "required"),
        ((AX, BY), {"bodysite_code": "A", "container_type": "Y"}, "container_type", "value"),
        ((AX, BY), {"container_type": "Z", "bodysite_code": "A"}, "container_type", "value"),
        ((AX, BY), {"container_type": "X", "bodysite_code": "Z"}, "bodysite_code", "value"),
        ((AX, (2, "A", "X")), {"bodysite_code": "A"}, "specimen_code", "required"),
        ((AX, (2, "B", "Y")), {"bodysite_code": "A", "container_type": "Y"}, "specimen_code", "required"),
        ((AX, (2, "B", "Y")), {"bodysite_code": "B", **ONE}, "bodysite_code", "value"),
    ],
)
def test_specimen_choice_requests_only_ambiguous_fields(offered: Any, wish: dict[str, Any], where: str, code: str) -> None:
    """Only what is still ambiguous is asked for."""
    (problem,) = rejections(options(*offered), {"id": "i", **wish})
    assert (problem.where, problem.code) == (f"analyticsrequests[0].{where}", code)


def test_container_of_other_body_site_reported_not_offered() -> None:
    """A container offered at another body site is reported as not offered here, not as unknown."""
    (problem,) = rejections(options(AX, BY), {"id": "i", "bodysite_code": "A", "container_type": "Y"})
    assert problem.what == "'Y' is not offered for type 1 at body site A of item 'i'"
    assert problem.hint == "choose X"


@given(
    st.sets(st.tuples(st.sampled_from([1, 2]), st.sampled_from([None, "A", "B"]), st.sampled_from([None, "X", "Y"])), min_size=1)
)
def test_every_nomenclature_option_is_selectable(offered: set[Any]) -> None:
    """Every option can be requested exactly as the nomenclature shows it."""
    for code, site, vessel in offered:
        wish = {"id": "i", "specimen_code": code, "bodysite_code": site, "container_type": vessel}
        (chosen,) = read(options(*offered), wish).lines[0].chosen_requirements
        assert (chosen.option.specimen_code, chosen.option.bodysite_code, chosen.option.container_type) == (code, site, vessel)


def test_several_specimen_types_need_multiple_specimen_item(sample: Catalogue) -> None:
    """Two specimen types are two items unless the item allows multiple specimens."""
    two = read(sample, {"id": "002.001", "specimen_code": 10}, {"id": "002.001", "specimen_code": 13})
    assert len(two.lines) == 2
    (problem,) = rejections(sample, {"id": "002.001", "specimen_code": [10, 13]})
    assert problem.where == "analyticsrequests[0].specimen_code"
    (line,) = read(sample, {"id": "051.001", "specimen_code": [31, "20"]}).lines
    assert [each.specimen_code for each in line.chosen_requirements] == ["31", "20"]


def test_repeated_item_accepted_only_where_allowed(sample: Catalogue) -> None:
    read(sample, {"id": "060.001", "guid": "a"}, {"id": "060.001", "guid": "b"})
    read(sample, {"id": "050.001", "bodysite_code": "EAR"}, {"id": "050.001", "bodysite_code": "NOS"})
    (problem,) = rejections(sample, {"id": "002.002"}, {"id": "001.001"}, {"id": "002.002", "specimen_code": "10"})
    assert problem.where == "analyticsrequests[2]"
    assert "analyticsrequests[0]" in problem.what
    (problem,) = rejections(sample, {"id": "002.015"}, {"id": "002.015"})
    assert problem.code == "duplicate"


@pytest.mark.parametrize(
    ("item", "where", "code"),
    [
        ({"id": "999"}, "[0].id", "not-found"),
        ({}, "[0].id", "required"),
        ({"id": True}, "[0].id", "value"),
        ({"id": ["002.002"]}, "[0].id", "value"),
        ("002.002", "[0]", "structure"),
        (None, "[0]", "structure"),
        ({"id": "002.001"}, "[0].specimen_code", "required"),
        ({"id": "002.001", "specimen_code": "99"}, "[0].specimen_code", "value"),
        ({"id": "050.001"}, "[0].bodysite_code", "required"),
        ({"id": "050.001", "bodysite_code": "TOE"}, "[0].bodysite_code", "value"),
        ({"id": "002.002", "container_type": "EDTA3"}, "[0].container_type", "value"),
        ({"id": "002.002", "guid": {}}, "[0].guid", "value"),
        ({"id": "002.002", "guid": "x" * 201}, "[0].guid", "too-long"),
    ],
)
def test_basket_error_names_its_position(sample: Catalogue, item: object, where: str, code: str) -> None:
    found = rejections(sample, item)
    assert (f"analyticsrequests{where}", code) in [(each.where, each.code) for each in found]


def test_all_basket_errors_reported_at_once(sample: Catalogue) -> None:
    found = rejections(sample, {"id": "999"}, {"id": "002.001"}, {"id": "002.002", "guid": "a"}, {"id": "001.001", "guid": "A"})
    assert [each.where for each in found] == [
        "analyticsrequests[0].id",
        "analyticsrequests[1].specimen_code",
        "analyticsrequests[3].guid",
    ]


@pytest.mark.parametrize("other", [{"id": "999"}, {"id": "002.001"}, {}])
@pytest.mark.parametrize("first", [True, False])
def test_duplicate_guid_reported_beside_other_errors(sample: Catalogue, other: dict[str, Any], first: bool) -> None:
    lines = [{**other, "guid": "a"}, {"id": "002.002", "guid": "A"}]
    found = rejections(sample, *(lines if first else reversed(lines)))
    assert len(found) == 2
    assert ("analyticsrequests[1].guid", "duplicate") in [(each.where, each.code) for each in found]


def test_invalid_request_envelope_rejected(sample: Catalogue) -> None:
    with pytest.raises(UnknownContractError):
        read(sample, {"id": "002.002"}, contract="C-300")
    assert [each.where for each in rejections(sample, contract=None, analyticsrequests=None)] == ["contract", "analyticsrequests"]
    assert rejections(sample)[0].what == "is empty"
    assert rejections(sample, *[{"id": "060.001"}] * 51)[0].code == "too-costly"
    assert rejections(sample, {"id": "002.002"}, includetransportcontainer="yes")[0].where == "includetransportcontainer"
    for body in ([], "x", None, 5):
        with pytest.raises(BasketError, match="not a JSON object"):
            basket.read_basket(body, sample.contracts, 50)
    with pytest.raises(BasketError, match="missing or not an array"):
        basket.read_basket({"contract": "C-100", "analyticsrequests": {}}, sample.contracts, 50)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["C-100", "002.001", "050.001", 10, "13"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "guid", "specimen_code"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["contract", "analyticsrequests", "includetransportcontainer"]), JSON))
def test_arbitrary_request_parsed_or_rejected(sample: Catalogue, body: dict[str, Any]) -> None:
    try:
        asked = basket.read_basket({"contract": "C-100", **body}, sample.contracts, 50)
    except BasketError as exc:
        assert exc.problems  # noqa: PT017 - either way is right
    else:
        assert asked.lines
