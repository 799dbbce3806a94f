"""Baskets: what is accepted leniently, and what is rejected with its position and a hint."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab_agent.catalogue import basket
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.basket_errors import BasketProblem, BasketProblems
from lab_agent.catalogue.model import Catalogue, Container, Contract, Item, Requirement, SpecimenOption
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.shared.errors import BasketError, DataInvalidError, UnknownContractError


def read(sample: Catalogue, *items: object, **more: object) -> Basket:
    body = {"contract": "C-100", "analyticsrequests": list(items), **more}
    return basket.read_basket(body, sample.contracts, 50)


def rejections(sample: Catalogue, *items: object, **more: object) -> list[BasketProblem]:
    with pytest.raises(BasketError) as caught:
        read(sample, *items, **more)
    assert all(isinstance(each, BasketProblem) and each.hint and each.what and each.code for each in caught.value.problems)
    return list(caught.value.problems)  # type: ignore[arg-type]


def places(sample: Catalogue, *items: object, **more: object) -> list[str]:
    """Where the problems are, each with its code: `[0].id not-found`."""
    found = rejections(sample, *items, **more)
    return [f"{each.where} {each.code}".removeprefix("analyticsrequests") for each in found]


def test_plain_basket_parsed(sample: Catalogue) -> None:
    asked = read(sample, {"id": "002.001", "specimen_code": "13", "guid": "g"}, includetransportcontainer=True)
    (line,) = asked.lines
    assert (line.item.id, line.guid, line.position, asked.include_transport_containers) == ("002.001", "g", 0, True)
    assert [each.specimen_code for each in line.chosen_requirements] == ["13"]


def test_leading_zeros_kept(sample: Catalogue) -> None:
    assert places(sample, {"id": "002.001", "specimen_code": "013"}) == ["[0].specimen_code value"]
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
    both = {"id": "050.001", "bodycite_code": "EAR", "bodysite_code": "NOS"}
    assert places(sample, both) == ["[0].bodycite_code value"]


def test_item_without_choice_needs_no_type(sample: Catalogue) -> None:
    (line,) = read(sample, {"id": "002.015"}).lines
    assert line.chosen_requirements == ()
    read(sample, {"id": "002.015", "specimen_code": "21"})


def test_insignificant_fields_ignored(sample: Catalogue) -> None:
    assert read(sample, {"id": "002.002", "bodysite_code": "ARM"}).lines[0].chosen_requirements


def options(*offered: tuple[int, str | None, str | None]) -> Catalogue:
    """A catalogue of one item with these options: type, body site, container."""
    made = []
    for code, site, vessel in offered:
        option = SpecimenOption("", code, "", site, "", vessel, "")
        made.append(Requirement("i", option, Container(vessel, "", "") if vessel else None, Decimal(1), "m"))
    item = Item("i", "i", Decimal(1), Turnaround(Decimal(1)), options=tuple(made))
    return Catalogue("v", {"C-100": Contract("C-100", "", {"i": item})}, {}, {})


LONG = "x" * 60
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""By the clock they fail on a loaded machine."""
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
    ("offered", "wish", "place", "what"),
    [
        ((AX, BY), {}, "bodysite_code required", ""),
        ((AX, BX, BY), {"container_type": "X"}, "bodysite_code required", ""),
        ((AX, AY, BX), {"bodysite_code": "A"}, "container_type required", ""),
        ((AX, (2, "A", "X")), {"bodysite_code": "A"}, "specimen_code required", ""),
        ((AX, (2, "B", "Y")), {"bodysite_code": "A", "container_type": "Y"}, "specimen_code required", ""),
        ((AX, BY), {"container_type": "Z", "bodysite_code": "A"}, "container_type value", "'Z' is not offered for type 1 at"),
        ((AX, BY), {"container_type": "X", "bodysite_code": "Z"}, "bodysite_code value", ""),
        ((AX, (2, "B", "Y")), {"bodysite_code": "B", **ONE}, "bodysite_code value", ""),
        ((AX, BY), {"bodysite_code": "A", "container_type": "Y"}, "container_type value", "at body site A of item 'i'; choose X"),
        ((AX, BY), {"bodysite_code": "Z"}, "bodysite_code value", "'Z' is not offered for type 1 of item 'i'"),
        (((1, None, "X"),), {"container_type": "Z"}, "container_type value", "'Z' is not offered for type 1 of item 'i'"),
        ((AX,), {"specimen_code": 2}, "specimen_code value", "type '2' is not offered for item 'i'; choose"),
    ],
)
def test_specimen_choice_requests_only_ambiguous_fields(offered: Any, wish: Any, place: str, what: str) -> None:
    """Only what is still ambiguous is asked for; what is offered elsewhere is not offered here, and is not unknown."""
    (problem,) = rejections(options(*offered), {"id": "i", **wish})
    assert f"{problem.where} {problem.code}" == f"analyticsrequests[0].{place}"
    assert what in f"{problem.what}; {problem.hint}"


def test_mandatory_type_need_not_be_chosen() -> None:
    catalogue = options(AX, (2, None, None))
    item = catalogue.contracts["C-100"].items["i"]
    mandatory = replace(item, options=item.options[:1], required=item.options[1:])
    offered = replace(catalogue, contracts={"C-100": Contract("C-100", "", {"i": mandatory})})
    (problem,) = rejections(offered, {"id": "i", "specimen_code": 2})
    assert problem.what == "type '2' is not offered for item 'i' (it is mandatory, and is added automatically)"


def test_choices_are_told_by_code_and_name() -> None:
    named = (Requirement("i", SpecimenOption("", code, name), None, Decimal(1), "m") for code, name in ((2, "Urine"), (1, "")))
    item = Item("i", "i", Decimal(1), Turnaround(Decimal(1)), options=tuple(named))
    (problem,) = rejections(Catalogue("v", {"C-100": Contract("C-100", "", {"i": item})}, {}, {}), {"id": "i"})
    assert problem.hint == "choose 1 or 2 (Urine)"
    for count, end in ((9, "…"), (8, "8")):
        (problem,) = rejections(options(*((code, None, None) for code in range(1, count + 1))), {"id": "i"})
        assert problem.hint.count(" or ") == 7
        assert problem.hint.endswith(end)


@pytest.mark.parametrize(
    "wish",
    [
        {"id": LONG},
        {"id": "002.015", "specimen_code": LONG},
        {"id": "002.001", "specimen_code": LONG},
        {"id": "050.001", "bodysite_code": LONG},
        {"id": "050.001", "bodysite_code": "EAR", "bodycite_code": LONG},
        {"id": "050.001", "bodysite_code": LONG, "bodycite_code": "EAR"},
    ],
)
def test_long_value_is_shown_by_its_first_fifty_characters(sample: Catalogue, wish: dict[str, Any]) -> None:
    problem = rejections(sample, wish)[0]
    assert LONG[:50] in problem.what
    assert LONG[:51] not in problem.what


@QUIET
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
    ("items", "expected"),
    [
        ([{"id": "999"}], "[0].id not-found"),
        ([{}], "[0].id required"),
        ([{"id": True}], "[0].id value, [0].id required"),
        ([{"id": ["002.002"]}], "[0].id value, [0].id required"),
        (["002.002"], "[0] structure"),
        ([None, None], "[0] structure, [1] structure"),
        ([{"id": "002.001"}, {"id": "002.001"}], "[0].specimen_code required, [1].specimen_code required"),
        ([{"id": "002.001", "specimen_code": "99"}], "[0].specimen_code value"),
        ([{"id": "002.001", "specimen_code": [10, 13]}], "[0].specimen_code value"),
        ([{"id": "002.015", "specimen_code": "13"}], "[0].specimen_code value"),
        ([{"id": "002.002", "specimen_code": {}}], "[0].specimen_code value"),
        ([{"id": "051.001", "specimen_code": [31, {}]}], "[0].specimen_code value"),
        ([{"id": "050.001"}], "[0].bodysite_code required"),
        ([{"id": "050.001", "bodysite_code": "TOE"}], "[0].bodysite_code value"),
        ([{"id": "002.002", "bodysite_code": {}}], "[0].bodysite_code value"),
        ([{"id": "002.002", "bodycite_code": {}}], "[0].bodycite_code value"),
        ([{"id": "002.002", "container_type": "EDTA3"}], "[0].container_type value"),
        ([{"id": "002.002", "container_type": {}}], "[0].container_type value"),
        ([{"id": "002.002", "guid": {}}], "[0].guid value"),
        ([{"id": "002.002", "guid": "x" * 201}], "[0].guid too-long"),
        ([{"id": "002.002", "guid": "a"}] * 2, "[1].guid duplicate, [1] duplicate"),
        ([{"id": each} for each in ("060.001", "002.002", "002.002")], "[2] duplicate"),
        ([{"id": each} for each in ("002.015", "002.015", "002.002", "002.002")], "[1] duplicate, [3] duplicate"),
        (
            [{"id": "999"}, {"id": "002.001"}, {"id": "002.002", "guid": "a"}, {"id": "001.001", "guid": "A"}],
            "[0].id not-found, [1].specimen_code required, [3].guid duplicate",
        ),
    ],
)
def test_all_basket_errors_reported_with_their_position(sample: Catalogue, items: list[object], expected: str) -> None:
    assert ", ".join(places(sample, *items)) == expected


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
    for body in ([], "x", None, 5):
        with pytest.raises(BasketError, match="not a JSON object"):
            basket.read_basket(body, sample.contracts, 50)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["C-100", "002.001", "050.001", 10, "13"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "guid", "specimen_code"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@QUIET
@given(st.dictionaries(st.sampled_from(["contract", "analyticsrequests", "includetransportcontainer"]), JSON))
def test_arbitrary_request_parsed_or_rejected(sample: Catalogue, body: dict[str, Any]) -> None:
    try:
        asked = basket.read_basket({"contract": "C-100", **body}, sample.contracts, 50)
    except BasketError as exc:
        assert exc.problems  # noqa: PT017 - either way is right
    else:
        assert asked.lines


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], "body structure"),
        ({}, "contract required, analyticsrequests required"),
        ({"contract": " "}, "contract required, analyticsrequests required"),
        ({"contract": True}, "contract value, analyticsrequests required"),
        ({"contract": "x" * 201}, "contract too-long, analyticsrequests required"),
        ({"contract": "C-100", "analyticsrequests": {}}, "analyticsrequests required"),
        ({"contract": "C-100", "analyticsrequests": []}, "analyticsrequests required"),
        ({"contract": "C-100", "analyticsrequests": [{}] * 51}, "analyticsrequests too-costly"),
        ({"analyticsrequests": [{}]}, "contract required"),
        (
            {"contract": "C-100", "analyticsrequests": [{"id": "999"}], "includetransportcontainer": 1},
            "includetransportcontainer value, analyticsrequests[0].id not-found",
        ),
    ],
)
def test_problem_has_its_place_and_code(sample: Catalogue, body: Any, expected: str) -> None:
    with pytest.raises(BasketError) as caught:
        basket.read_basket(body, sample.contracts, 50)
    assert ", ".join(f"{each.where} {each.code}" for each in caught.value.problems) == expected  # type: ignore[attr-defined]
    assert all(each.what and each.hint for each in caught.value.problems)


def test_basket_of_the_largest_size_is_read(sample: Catalogue) -> None:
    assert len(read(sample, *[{"id": "060.001"}] * 50).lines) == 50
    assert len(read(sample, {"id": "060.001", "guid": "x" * 200}).lines[0].guids[0]) == 200
    assert read(sample, {"id": "060.001"}).lines[0].guids == ()
    assert read(sample, {"id": "060.001"}).include_transport_containers is False
    assert read(sample, {"id": "060.001"}).contract is sample.contracts["C-100"]


def test_first_of_two_similar_items_is_suggested() -> None:
    items = {
        key: Item(name, "a", Decimal(1), Turnaround(Decimal(1)))
        for key, name in {"0A1": "0A1", "00a1": "0A1", "X7": "X7", "SS": "SS"}.items()
    }
    ids = ("a1", "b", "00A1", "7", "ß")
    body = {"contract": "C-100", "analyticsrequests": [{"id": each} for each in ids]}
    with pytest.raises(BasketError) as caught:
        basket.read_basket(body, {"C-100": Contract("C-100", "", items)}, 9)
    assert ["'0A1'" in each.hint for each in caught.value.problems] == [True, False, True, False, False]
    assert ["nomenclature" in each.hint for each in caught.value.problems] == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("codes", "read_as"),
    [
        (13, ("13",)),
        (" 13 ", ("13",)),
        (Decimal("13.0"), ("13",)),
        ("13.00", ("13",)),
        ("13.5", ("13.5",)),
        ("x13.0", ("x13.0",)),
        (["13", 13, None, "10"], ("13", "10")),
        ([], ()),
        (None, ()),
    ],
)
def test_codes_of_specimens_are_whole_numbers(codes: object, read_as: tuple[str, ...]) -> None:
    problems = BasketProblems()
    assert problems.read_codes({"specimen_code": codes}, "specimen_code", "x") == read_as
    problems.raise_if_any()


@pytest.mark.parametrize(("body", "flag"), [({}, False), ({"x": None}, False), ({"x": False}, False), ({"x": True}, True)])
def test_flag_is_a_boolean_or_missing(body: dict[str, object], flag: bool) -> None:
    problems = BasketProblems()
    assert problems.read_flag(body, "x") is flag
    assert not problems.collected
    assert problems.read_flag({"x": "yes"}, "x") is False
    assert [(each.where, each.code) for each in problems.collected] == [("x", "value")]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": 1.50}', {"a": Decimal("1.50")}),
        (b"\xef\xbb\xbf[]", []),
        (b'"\\ud83d\\ude00"', "😀"),
    ],
)
def test_body_is_json_in_utf8(body: bytes, value: object) -> None:
    assert basket.decode_basket(body) == value


@pytest.mark.parametrize(
    ("body", "is_half"),
    [
        (b'{"a": "\\ud83d"}', True),
        (b'{"a": "\\uDE00"}', True),
        (b'{"n": ' + b"1" * 5000 + b', "a": "\\ud83d"}', True),
        (b'{"n": 1e9999, "a": "\\ud83d"}', True),
        (b'{"a": 1', False),
        (b'{"a": "\\ud83d\\ude00"', False),
        (b'{"a": 1, "a": 2}', False),
        (b"\xff", False),
        (b"[" * 100_000 + b'"\\ud83d"', False),
    ],
)
def test_body_that_is_no_json_is_rejected(body: bytes, is_half: bool) -> None:
    with pytest.raises(DataInvalidError) as caught:
        basket.decode_basket(body)
    (problem,) = caught.value.problems
    assert ("uD800" in problem.what) is is_half
    assert problem.where == "document" or not is_half


@pytest.mark.parametrize(("one", "other", "codes"), [("aé", "AÉ", ["duplicate"]), ("ß", "SS", []), ("a1", "a01", [])])
def test_guids_are_compared_without_case(sample: Catalogue, one: str, other: str, codes: list[str]) -> None:
    found = rejections(sample, {"id": "060.001", "guid": one}, {"id": "060.001", "guid": other}, {"id": "999"})
    assert [each.code for each in found if each.where.endswith("guid")] == codes
