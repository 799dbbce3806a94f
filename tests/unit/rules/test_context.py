"""What several rules ask about an order: places, types, clocks, second barcodes, quantities and tolerance tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.fhir.received_order import ReferenceText
from lab_agent.rules import collection_times, container
from lab_agent.rules.clocks import clocks_differ, defer, format_difference
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Violation
from tests.unit.fhir.sample import Wire, pr1, put, s1, s2
from tests.unit.rules.sample import (
    CATALOGUE,
    FACTS,
    HOUR,
    MINUTE,
    SECOND,
    body_answers,
    collected,
    context,
    item,
    judge,
    second_label,
    tolerance,
    tube,
    with_item,
    with_requirement,
)

DAY = 24 * HOUR
AHEAD, FUTURE = "specimen.collected-ahead", "specimen.collected-future"


def told(*changes: Any, **facts: Any) -> dict[str, Violation]:
    """What is told of collection times ahead."""
    rules = (collection_times._check_collected_ahead, collection_times._check_collected_future)
    return {rule.id: each for rule in rules for each in rule.check(context(*changes, catalogue=None, **facts))}


def test_type_to_look_for_is_empty_without_one() -> None:
    made = context(put(s1, "type", to=None))
    assert [made.type_or_empty(each) for each in made.order.specimens] == ["", "12"]
    assert made.contract_code(ReferenceText(where="ProcedureRequest[0].supportingInfo[0]")) is None


def test_without_a_catalogue_no_container_is_one_that_others_travel_in() -> None:
    made = context(catalogue=None)
    assert [each for _, each, _ in made.containers() if made.is_transport(each)] == []


@pytest.mark.parametrize("where", [0, 1])
def test_form_of_a_second_barcode_counts_for_its_tests_tube_alone(where: int) -> None:
    usual = ["10000001", "10000002"][where]

    def number(wire: Wire) -> None:
        labels = [s1, s2][where](wire)["container"][0]["identifier"]
        labels.insert(0, {"system": labels[0]["system"], "value": "1234-5678"})

    made = context(second_label("042.075", None), number)
    tube = [each for _, each, _ in made.containers()][where]
    assert [each.value for each in made.labels(tube)] == ([usual] if where == 0 else ["1234-5678", usual])
    assert made.second_label_candidates(tube) == (("1234-5678",) if where == 0 else (usual,))
    assert made.barcodes(tube) == ((usual, "1234-5678") if where == 0 else ("1234-5678",))


@pytest.mark.parametrize(("setting", "rule"), [("https://lab.example/second-labels", "system"), (None, "unset")])
def test_numbers_in_the_form_of_a_second_barcode_are_named(setting: str | None, rule: str) -> None:
    def numbers(wire: Wire) -> None:
        second_label("042.075", "1234-5678")(wire)
        tube(wire)["identifier"][1]["system"] = "urn:clinic"
        tube(wire)["identifier"].append({"value": "8765-4321"})

    check = {"system": container._check_second_label_system, "unset": container._check_second_label_unset}[rule].check
    (found,) = check(context(numbers, systems=replace(FACTS.systems, second_labels_system=setting)))
    assert (found.values["label"], found.evidence) == ("1234-5678, 8765-4321", ("1234-5678", "8765-4321"))
    assert found.line_ids == ("t1",)


@pytest.mark.parametrize(
    ("volume", "quantity", "values"),
    [
        ("0.5", "0.49", [("0.49", "0.5")]),
        ("2.7", "2.7", []),
        ("2.7", "2.69", [("2.69", "2.7")]),
        ("6.1", "0.7", []),
        ("6.1", "0.69", [("0.69", "0.7")]),
        ("5.4", "2.7", []),
        ("5.4", "2.69", [("2.69", "2.7")]),
        ("0", "0.01", []),
        ("1E+2", "2E+1", [("20", "100")]),
    ],
)
def test_tube_holds_at_least_rest_of_split_volume(volume: str, quantity: str, values: list[tuple[str, str]]) -> None:
    """A tube of 2.7 ml that items may use; of a larger volume, one tube is filled with what the others leave.

    What has no container is needed whole.
    """
    more = {"container": None} if volume == "1E+2" else {}
    changed = with_requirement(volume=Decimal(volume), **more)
    made = context(put(tube, "specimenQuantity", "value", to=Decimal(quantity)), catalogue=changed)
    found = [each.values for each in container._check_quantity_enough.check(made)]
    assert [(each["quantity"], each["needed"]) for each in found] == values
    assert all(each["code"] == "001.001" for each in found)


def test_line_is_checked_after_one_that_leads_elsewhere() -> None:
    def change(wire: Wire) -> None:
        first, second = wire["line_tasks"]
        first["basedOn"] = [{"reference": "https://other.example/api/procedurerequest/1"}]
        second["basedOn"] = []

    found = {(each.rule, each.line) for each in judge(change).findings() if each.rule.startswith("order.")}
    assert found == {("order.address", None), ("order.line-based-on", "t2")}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"subject": {"reference": "specimen/s1"}}, "ProcedureRequest[0].subject"),
        ({"subject": {"display": "Lovelace Ada"}}, "ProcedureRequest[0].subject"),
        ({"specimen": [{"reference": "specimen/s1"}, {"reference": "patient/p1"}]}, "ProcedureRequest[0].specimen[1]"),
        ({"specimen": [{"reference": "specimen/s1"}, {"display": "a tube"}]}, "ProcedureRequest[0].specimen[1]"),
    ],
)
def test_reference_leads_to_resource_of_right_type(change: Wire, where: str) -> None:
    found = judge(lambda wire: pr1(wire).update(change)).findings()
    assert [(each.where, each.line) for each in found if each.rule == "order.reference-form"] == [(where, "t1")]


def test_every_missing_type_is_named() -> None:
    (reason,) = (each.message for each in judge(item("002.015"), body_answers).findings() if each.rule == "specimen.required")
    assert "biomaterial type 10, 21." in reason


# --- clocks and collection times --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "difference"), [(None, 0), (0, 0), (120, 0), (-120, 0), (121, 121), (-121, 121)])
def test_clocks_differ_beyond_the_tolerance(seconds: int | None, difference: int) -> None:
    offset = None if seconds is None else timedelta(seconds=seconds)
    assert replace(FACTS, service_clock_offset=offset).clock_difference == timedelta(seconds=difference)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 seconds"),
        (1, "1 second"),
        (31, "1 minute"),
        (60, "1 minute"),
        (1_799, "30 minutes"),
        (1_801, "1 hour"),
        (37_801, "11 hours"),
        (43_199, "12 hours"),
        (43_201, "1 day"),
        (907_201, "11 days"),
        (172_800, "2 days"),
    ],
)
def test_difference_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert format_difference(timedelta(seconds=seconds)) == text


def test_what_waits_for_the_clocks_keeps_its_place_and_evidence() -> None:
    birth = next(each for each in RULES if each.id == "patient.birth-possible")
    deferred = defer(Violation("Patient", ("t1",), {"x": "y"}, ("seen",)), birth, HOUR)
    values = {"rule": "patient.birth-possible", "difference": "1 hour"}
    assert deferred == Violation("Patient", ("t1",), values, ("patient.birth-possible", "seen"))
    assert clocks_differ.id == "order.clocks-differ"


@pytest.mark.parametrize(
    ("ahead", "offset", "rules"),
    [
        (-5 * MINUTE, 0 * SECOND, []),
        (15 * MINUTE, 0 * SECOND, []),
        (15 * MINUTE + SECOND, 0 * SECOND, [AHEAD]),
        (DAY, 0 * SECOND, [AHEAD]),
        (DAY + SECOND, 0 * SECOND, [FUTURE]),
        (DAY + SECOND, 15 * MINUTE, [FUTURE]),
        (DAY + SECOND, -15 * MINUTE, [FUTURE]),
        (DAY + SECOND, 15 * MINUTE + SECOND, [AHEAD]),
        (DAY + SECOND, None, [AHEAD]),
    ],
)
def test_time_is_ahead_beyond_the_tolerance(ahead: timedelta, offset: timedelta | None, rules: list[str]) -> None:
    assert list(told(collected(FACTS.now + ahead), service_clock_offset=offset)) == rules


@pytest.mark.parametrize(("offset", "text"), [(None, "?"), (90.4, "90"), (-90, "-90"), (0, "0")])
def test_time_ahead_is_told_with_the_clocks_offset(offset: float | None, text: str) -> None:
    at = (FACTS.now + 20 * MINUTE).isoformat()
    known = None if offset is None else timedelta(seconds=offset)
    found = told(collected(at), service_clock_offset=known)[AHEAD]
    assert (found.values, found.evidence) == ({"text": at, "offset": text}, (at,))


@pytest.mark.parametrize(
    ("period", "is_ahead"),
    [
        ({"start": -60, "end": 20}, True),
        ({"start": 20}, True),
        ({"end": 20}, True),
        ({"start": 20, "end": -60}, False),
        ({"start": -60}, False),
    ],
)
def test_end_of_a_period_counts_before_its_start(period: dict[str, int], is_ahead: bool) -> None:
    ends = {name: (FACTS.now + minutes * MINUTE).isoformat() for name, minutes in period.items()}
    assert bool(told(put(s1, "collection", to={"collectedPeriod": ends}))) is is_ahead


def with_ways(*ways: tuple[int, ...]) -> Any:
    """The tolerance test may be taken from several body sites, each with time points of its own."""
    (option,) = CATALOGUE.contract("C-100").items["006.001"].options
    point = option.time_points[0]
    options = tuple(
        replace(
            option,
            option=replace(option.option, bodysite_code=f"S{n}"),
            time_points=tuple(replace(point, minutes=each) for each in way),
        )
        for n, way in enumerate(ways)
    )
    return with_item("006.001", options=options)


@pytest.mark.parametrize(
    ("ways", "points"),
    [
        (((0, 60, 120), (0, 120)), "0, 120"),
        (((0, 120), (0, 60, 120)), "0, 120"),
        (((0, 120), (0, 60)), "0, 60"),
        (((0, 60), (0, 120)), "0, 60"),
        (((0, 30, 60, 90), (0, 60, 120), (60, 120)), "60, 120"),
        (((60, 120), (0, 60, 120), (0, 30, 60, 90)), "60, 120"),
    ],
)
def test_fewest_samples_are_asked_for(ways: tuple[tuple[int, ...], ...], points: str) -> None:
    made = context(tolerance("08:00:00", points=None), catalogue=with_ways(*ways))
    (found,) = collection_times._check_tolerance_points.check(made)
    assert found.values == {"code": "006.001", "points": points}


@pytest.mark.parametrize(("other_way", "rules"), [((60, 120), ["specimen.tolerance-sequence"]), ((), [])])
def test_way_without_time_points_leaves_times_open(other_way: tuple[int, ...], rules: list[str]) -> None:
    """Samples that do not tell their time points may have been taken that way."""
    made = context(tolerance("08:00:00", "09:30:00", points=None), catalogue=with_ways((0, 60), other_way))
    checks = (collection_times._check_tolerance_points, collection_times._check_tolerance_sequence)
    assert [rule.id for rule in checks if list(rule.check(made))] == rules
