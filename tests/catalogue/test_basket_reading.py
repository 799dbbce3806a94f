"""Baskets: what is taken leniently, and what is refused with its position and the mend."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.catalogue import basket
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.basket_problems import BasketProblem
from lab_agent.catalogue.items import Catalogue, Container, Contract, Item, Requirement, SpecimenOption
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.errors import BasketError, UnknownContractError


def read(sample: Catalogue, *items: object, **more: object) -> Basket:
    body = {"contract": "C-100", "analyticsrequests": list(items), **more}
    return basket.read_basket(body, sample.contracts, 50)


def refusals(sample: Catalogue, *items: object, **more: object) -> list[BasketProblem]:
    with pytest.raises(BasketError) as caught:
        read(sample, *items, **more)
    assert all(isinstance(each, BasketProblem) and each.hint for each in caught.value.problems)
    return list(caught.value.problems)  # type: ignore[arg-type]


def test_a_plain_basket(sample: Catalogue) -> None:
    asked = read(sample, {"id": "002.001", "specimen_code": "13", "guid": "g"}, includetransportcontainer=True)
    (line,) = asked.lines
    assert (line.item.id, line.guid, line.position, asked.include_transport_containers) == ("002.001", "g", 0, True)
    assert [each.specimen_code for each in line.chosen_requirements] == ["13"]


@pytest.mark.parametrize("code", ["13", 13, " 13 "])
def test_codes_may_be_numbers_or_strings(sample: Catalogue, code: object) -> None:
    (line,) = read(sample, {"id": "002.001", "specimen_code": code}).lines
    assert line.chosen_requirements[0].specimen_code == "13"


def test_leading_zeros_stay(sample: Catalogue) -> None:
    (problem,) = refusals(sample, {"id": "002.001", "specimen_code": "013"})
    assert problem.where == "analyticsrequests[0].specimen_code"
    (problem,) = refusals(sample, {"id": "42.036"})
    assert "did you mean '042.036'?" in problem.hint


@pytest.mark.parametrize("nothing", [{}, {"bodysite_code": None, "container_type": None, "specimen_code": None, "guid": None}])
def test_null_is_missing_and_an_item_with_one_option_needs_no_choice(sample: Catalogue, nothing: dict[str, Any]) -> None:
    (line,) = read(sample, {"id": "002.002", **nothing}, includetransportcontainer=None).lines
    assert [each.specimen_code for each in line.chosen_requirements] == ["10"]
    assert line.guid is None


def test_the_variant_spelling_of_the_body_site(sample: Catalogue) -> None:
    (line,) = read(sample, {"id": "050.001", "bodycite_code": "EAR"}).lines
    assert line.chosen_requirements[0].option.bodysite_name == "Ear"
    read(sample, {"id": "050.001", "bodycite_code": "EAR", "bodysite_code": "EAR"})
    (problem,) = refusals(sample, {"id": "050.001", "bodycite_code": "EAR", "bodysite_code": "NOS"})
    assert problem.where == "analyticsrequests[0].bodycite_code"


def test_an_item_without_choice(sample: Catalogue) -> None:
    (line,) = read(sample, {"id": "002.015"}).lines
    assert line.chosen_requirements == ()
    read(sample, {"id": "002.015", "specimen_code": "21"})
    (problem,) = refusals(sample, {"id": "002.015", "specimen_code": "13"})
    assert "has no choice" in problem.what


def test_insignificant_fields_are_not_looked_at(sample: Catalogue) -> None:
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
def test_what_is_given_narrows_the_choice_together(offered: Any, wish: dict[str, Any], meant: Any) -> None:
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
def test_only_what_is_still_ambiguous_is_asked_for(offered: Any, wish: dict[str, Any], where: str, code: str) -> None:
    (problem,) = refusals(options(*offered), {"id": "i", **wish})
    assert (problem.where, problem.code) == (f"analyticsrequests[0].{where}", code)


def test_a_container_of_another_site_is_not_said_to_be_unknown() -> None:
    (problem,) = refusals(options(AX, BY), {"id": "i", "bodysite_code": "A", "container_type": "Y"})
    assert problem.what == "'Y' is not offered for type 1 at body site A of item 'i'"
    assert problem.hint == "choose X"


@given(
    st.sets(st.tuples(st.sampled_from([1, 2]), st.sampled_from([None, "A", "B"]), st.sampled_from([None, "X", "Y"])), min_size=1)
)
def test_every_option_can_be_asked_for_as_the_nomenclature_shows_it(offered: set[Any]) -> None:
    for code, site, vessel in offered:
        wish = {"id": "i", "specimen_code": code, "bodysite_code": site, "container_type": vessel}
        (chosen,) = read(options(*offered), wish).lines[0].chosen_requirements
        assert (chosen.option.specimen_code, chosen.option.bodysite_code, chosen.option.container_type) == (code, site, vessel)


def test_two_types_are_two_items_unless_multiple_specimen(sample: Catalogue) -> None:
    two = read(sample, {"id": "002.001", "specimen_code": 10}, {"id": "002.001", "specimen_code": 13})
    assert len(two.lines) == 2
    (problem,) = refusals(sample, {"id": "002.001", "specimen_code": [10, 13]})
    assert problem.where == "analyticsrequests[0].specimen_code"
    (line,) = read(sample, {"id": "051.001", "specimen_code": [31, "20"]}).lines
    assert [each.specimen_code for each in line.chosen_requirements] == ["31", "20"]


def test_a_repeat_only_where_it_is_allowed(sample: Catalogue) -> None:
    read(sample, {"id": "060.001", "guid": "a"}, {"id": "060.001", "guid": "b"})
    read(sample, {"id": "050.001", "bodysite_code": "EAR"}, {"id": "050.001", "bodysite_code": "NOS"})
    (problem,) = refusals(sample, {"id": "002.002"}, {"id": "001.001"}, {"id": "002.002", "specimen_code": "10"})
    assert problem.where == "analyticsrequests[2]"
    assert "analyticsrequests[0]" in problem.what
    (problem,) = refusals(sample, {"id": "002.015"}, {"id": "002.015"})
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
def test_each_refusal_names_the_position(sample: Catalogue, item: object, where: str, code: str) -> None:
    found = refusals(sample, item)
    assert (f"analyticsrequests{where}", code) in [(each.where, each.code) for each in found]


def test_all_problems_come_at_once(sample: Catalogue) -> None:
    found = refusals(sample, {"id": "999"}, {"id": "002.001"}, {"id": "002.002", "guid": "a"}, {"id": "001.001", "guid": "A"})
    assert [each.where for each in found] == [
        "analyticsrequests[0].id",
        "analyticsrequests[1].specimen_code",
        "analyticsrequests[3].guid",
    ]


@pytest.mark.parametrize("other", [{"id": "999"}, {"id": "002.001"}, {}])
@pytest.mark.parametrize("first", [True, False])
def test_a_doubled_guid_is_said_beside_another_mistake(sample: Catalogue, other: dict[str, Any], first: bool) -> None:
    lines = [{**other, "guid": "a"}, {"id": "002.002", "guid": "A"}]
    found = refusals(sample, *(lines if first else reversed(lines)))
    assert len(found) == 2
    assert ("analyticsrequests[1].guid", "duplicate") in [(each.where, each.code) for each in found]


def test_the_frame_of_the_request(sample: Catalogue) -> None:
    with pytest.raises(UnknownContractError):
        read(sample, {"id": "002.002"}, contract="C-300")
    assert [each.where for each in refusals(sample, contract=None, analyticsrequests=None)] == ["contract", "analyticsrequests"]
    assert refusals(sample)[0].what == "is empty"
    assert refusals(sample, *[{"id": "060.001"}] * 51)[0].code == "too-costly"
    assert refusals(sample, {"id": "002.002"}, includetransportcontainer="yes")[0].where == "includetransportcontainer"
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
def test_whatever_comes_is_answered_or_refused(sample: Catalogue, body: dict[str, Any]) -> None:
    try:
        asked = basket.read_basket({"contract": "C-100", **body}, sample.contracts, 50)
    except BasketError as exc:
        assert exc.problems  # noqa: PT017 - either way is right
    else:
        assert asked.lines
