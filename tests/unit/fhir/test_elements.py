from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.fhir import elements
from lab_agent.fhir.json_reader import JsonReader

ONE = {"x": 1}


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (elements.items_of, None, []),
        (elements.items_of, "", [""]),
        (elements.objects_of, [ONE, 7, None, ONE], [ONE, ONE]),
        (elements.object_of, ONE, ONE),
        (elements.object_of, [ONE], ONE),
        (elements.object_of, [ONE, ONE], None),
        (elements.references_of, ["task/1", ONE, 7], [{"reference": "task/1"}, ONE]),
        (elements.references_of, "task/1", [{"reference": "task/1"}]),
        (elements.text_of, "\t a\u00a0", "a"),
        (elements.text_of, " ", None),
        (elements.text_of, 7, None),
        (elements.text_of, ["a", "b"], None),
        (elements.word_of, [0], "0"),
        (elements.word_of, True, None),
        (elements.word_of, Decimal(7), None),
        (elements.code_of, " REQUESTED", "requested"),
        (elements.code_of, 7, None),
        (elements.codes_of, {"coding": [{"code": "A"}, {"code": 7}, {}, 1]}, {"A", "7"}),
        (elements.codes_of, [{"coding": {"code": "A"}}], {"A"}),
        (elements.number_of, "5", 5),
        (elements.number_of, Decimal("5.0"), 5),
        (elements.number_of, Decimal("5.5"), None),
        (elements.number_of, Decimal("1e999"), None),
        (elements.number_of, "-5", None),
        (elements.number_of, "٣", None),
        (elements.number_of, "9" * 5000, None),
        (elements.number_of, True, None),
    ],
)
def test_value_is_read_where_it_means_one_thing(read: Any, value: Any, expected: Any) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(("codes", "has"), [({"b"}, True), ({"A", "x"}, True), ({"c"}, False), (set(), False)])
def test_codes_compare_in_any_case(codes: set[str], has: bool) -> None:
    assert elements.has_code({"coding": [{"code": "a"}, {"code": "B"}]}, codes) is has


@pytest.mark.parametrize(
    ("found", "ours", "expected"),
    [
        ({"a": [ONE]}, {"a": ONE}, {"a": ONE}),
        ({"a": [{"b": [1]}, {"b": [2]}]}, {"a": [{"b": 1}]}, {"a": [{"b": 1}, {"b": [2]}]}),
        ([{"a": 1}], {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": 1}, {"a": [1, 2]}),
        ({"more": [1]}, {}, {"more": [1]}),
        ({"a": None}, {"a": [1]}, {"a": []}),
    ],
)
def test_element_takes_the_types_of_ours(found: Any, ours: Any, expected: Any) -> None:
    assert elements.shaped_like(found, ours) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
)


@given(JSON)
def test_element_in_its_own_types_stays(value: Any) -> None:
    assert elements.shaped_like(value, value) == value


def reader(**body: Any) -> JsonReader:
    return JsonReader(body, "Task", "https://exchange.example/api/", [])


@pytest.mark.parametrize(
    ("body", "read", "expected"),
    [
        ({"status": "ACTIVE"}, lambda found: found.fhir_code("status"), "active"),
        ({"a": ["x"]}, lambda found: found.text("a"), "x"),
        ({"a": [{"b": "x"}, {"b": "y"}]}, lambda found: found.child("a").text("b"), None),
        (
            {"a": [" task/1 ", {"reference": "task/2"}]},
            lambda found: [str(e.target) for e in found.references("a")],
            ["task/1", "task/2"],
        ),
        ({"a": "patient/1"}, lambda found: str(found.reference("a").target), "patient/1"),
    ],
)
def test_reader_takes_other_types_and_reports_them(body: dict[str, Any], read: Any, expected: Any) -> None:
    found = reader(**body)
    assert read(found) == expected
    assert bool(found.malformed_fields) is (body != {"status": "ACTIVE"})
