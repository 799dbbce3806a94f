"""Pre-analytics: sharing, volumes, splits, conflicts, time points, required types, and the fewest tubes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab_agent.catalogue import basket, preanalytics, supporting_info
from lab_agent.catalogue.basket import BasketLine
from lab_agent.catalogue.bin_packing import pack
from lab_agent.catalogue.model import Catalogue, Container, Item, Requirement, SpecimenOption, TimePoint
from lab_agent.catalogue.tubes import Preanalytics
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.shared import exact_json

TUBE = Container("T5", "T5", "tube", Decimal("5.0"), Decimal("0.5"), "ml", "BAG")
CATALOGUE = Catalogue("1", {}, {"T5": TUBE, "BAG": Container("BAG", "Bag", "a bag")}, {})


def need(item: str, volume: str = "1.0", code: int = 10, **more: object) -> Requirement:
    option = SpecimenOption("", code, "Serum", container_type="T5", container_name="T5")
    return replace(Requirement(item, option, TUBE, Decimal(volume), "draw"), **more)  # type: ignore[arg-type]


def item(*options: Requirement, required: tuple[Requirement, ...] = (), several: bool = False) -> Item:
    name = (*options, *required)[0].item_id
    return Item(name, name, Decimal(1), Turnaround(Decimal(1)), options=options, required=required, multiple_specimen=several)


def lines(*items: Item) -> list[BasketLine]:
    return [BasketLine(i, each, each.options[:1], f"g{i}") for i, each in enumerate(items)]


def plan(asked: Iterable[BasketLine]) -> Preanalytics:
    return preanalytics.calculate(CATALOGUE, asked)


def test_items_share_tube_with_dead_volume_counted_once() -> None:
    (tube,) = plan(lines(item(need("a", "1.0")), item(need("b", "2.5")))).tubes
    assert tube.quantity == Decimal("4.0")
    assert tube.guids == ("g0", "g1")


@pytest.mark.parametrize(
    ("volumes", "quantities"),
    [(("3.0", "3.0"), ["3.5", "3.5"]), (("10.0", "1.0"), ["2.5", "5.0", "5.0"]), (("9.0",), ["5.0", "5.0"])],
)
def test_volume_above_capacity_splits_into_several_tubes(volumes: tuple[str, ...], quantities: list[str]) -> None:
    """An item above the capacity fills tubes and shares the rest; an exact multiple leaves none."""
    tubes = plan(lines(*(item(need(name, volume)) for name, volume in zip("ab", volumes, strict=False)))).tubes
    assert sorted(str(tube.quantity) for tube in tubes) == quantities
    assert [tube.guids for tube in tubes if tube.quantity == Decimal("2.5")] == [("g0", "g1")] * ("2.5" in quantities)


@pytest.mark.parametrize(
    "apart",
    [
        {"own_tube": True},
        {"incompatible": frozenset({"a"})},
        {"method": "another way"},
        {"processing": ("freeze",)},
        {"option": SpecimenOption("", 11, "Plasma")},
        {"option": SpecimenOption("", 10, "Serum", "ARM", "Arm")},
        {"container": replace(TUBE, type="T6")},
        {"time_points": (TimePoint(0, "draw"),)},
    ],
)
def test_incompatible_items_use_separate_tubes(apart: dict[str, object]) -> None:
    other = replace(need("b"), **apart)  # type: ignore[arg-type]
    assert len(plan(lines(item(need("a")), item(other))).tubes) == 2
    assert len(plan(lines(item(other), item(need("a")))).tubes) == 2


def test_item_shares_a_tube_with_one_of_two_that_are_incompatible() -> None:
    asked = lines(item(need("a")), item(need("b", incompatible=frozenset({"a"}))), item(need("c")))
    assert len(plan(asked).tubes) == 2


def test_required_specimen_types_added(sample: Catalogue) -> None:
    asked = basket.read_basket({"contract": "C-100", "analyticsrequests": [{"id": "002.015", "guid": "g"}]}, sample.contracts, 9)
    tubes = preanalytics.calculate(sample, asked.lines).tubes
    assert [(tube.kind.specimen_code, tube.guids) for tube in tubes] == [(10, ("g",)), (21, ("g",))]


def test_shared_required_specimen_type_added_once() -> None:
    """Several specimen types of one test need its required type once."""
    serum, plasma, urine = need("a", code=10), need("a", code=11), need("a", code=20)
    both = item(serum, plasma, required=(urine,), several=True)
    split = [BasketLine(0, both, (serum,), "g0"), BasketLine(1, both, (plasma,), "g1")]
    assert [(t.kind.specimen_code, t.guids) for t in plan(split).tubes] == [(10, ("g0",)), (11, ("g1",)), (20, ("g0", "g1"))]
    assert [t.kind.specimen_code for t in plan([BasketLine(0, both, (serum, plasma), "g0")]).tubes] == [10, 11, 20]
    twice = [*split, BasketLine(2, both, (serum,), "g2")]
    assert next(t.quantity for t in plan(twice).tubes if t.kind.specimen_code == 20) == Decimal("2.5")


def test_missing_guid_is_accepted() -> None:
    (tube,) = plan([BasketLine(0, item(need("a")), (need("a"),), None), BasketLine(1, item(need("b")), (need("b"),), "g")]).tubes
    assert tube.guids == ("g",)
    assert tube.item_ids == ("a", "b")


def test_tube_json_matches_documented_types() -> None:
    answer = plan(lines(item(need("a", "1.50", processing=("spin", "cool"), supporting_info=("x", "y")))))
    (with_bag,) = exact_json.loads(exact_json.dumps(answer.as_json([None], include_transport=True)))["specimens"]
    assert with_bag == {
        "label": None,
        "code": 10,
        "collection": {"quantity": Decimal("2.00"), "method": "draw"},
        "processing": [{"description": "spin"}, {"description": "cool"}],
        "container": [{"description": "tube", "type": "T5"}, {"description": "a bag", "type": "BAG"}],
        "guids": ["g0"],
        "supportingInfo": "specimen=10,x,y",
    }
    assert answer.as_json(["0001"])["specimens"][0]["container"] == [{"description": "tube", "type": "T5"}]
    assert answer.as_json(["0001"])["specimens"][0]["label"] == "0001"


@pytest.mark.parametrize(("labels", "second"), [([], ()), (["1", "2"], ()), (["1"], [(), ()])])
def test_answer_wants_labels_for_each_tube(labels: list[str], second: list[tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="zip"):
        plan(lines(item(need("a")))).as_json(labels, second_labels=second)


def test_explanation_gives_each_tube_and_its_reasons() -> None:
    box = Container("BOX", "Box", "a box")
    asked = lines(
        item(need("a", "10.0", own_tube=True, incompatible=frozenset({"c", "b"}))),
        item(need("d", code=11, incompatible=frozenset({"e"}))),
        item(need("e", code=11)),
        item(need("f", "2.0", code=12, container=None)),
        item(need("g", "2.0", code=13, container=box)),
    )
    of_a = "of 10.0 that it needs; needs its own tube; not with b, c"
    assert list(preanalytics.explain_preanalytics(plan(asked))) == [
        "type 10, T5 (T5), draw: 3 tubes, and fewer are not possible",
        "  tube 1: 5.0 of 5.0 ml, 0.5 of it dead volume",
        f"    a: 4.5 ({of_a})",
        "  tube 2: 5.0 of 5.0 ml, 0.5 of it dead volume",
        f"    a: 4.5 ({of_a})",
        "  tube 3: 1.5 of 5.0 ml, 0.5 of it dead volume",
        f"    a: 1.0 ({of_a})",
        "type 11, T5 (T5), draw: 2 tubes, and fewer are not possible",
        "  tube 1: 1.5 of 5.0 ml, 0.5 of it dead volume",
        "    d: 1.0 (not with e)",
        "  tube 2: 1.5 of 5.0 ml, 0.5 of it dead volume",
        "    e: 1.0",
        "type 12, any container, draw: 1 tube, and fewer are not possible",
        "  tube 1: 2.0, 0 of it dead volume",
        "    f: 2.0",
        "type 13, BOX (Box), draw: 1 tube, and fewer are not possible",
        "  tube 1: 2.0, 0 of it dead volume",
        "    g: 2.0",
    ]


def test_shortest_stability_reported(sample: Catalogue) -> None:
    items = [{"id": "001.001", "guid": "a"}, {"id": "001.002", "guid": "b"}]
    asked = basket.read_basket({"contract": "C-100", "analyticsrequests": items}, sample.contracts, 9)
    (tube,) = preanalytics.calculate(sample, asked.lines).tubes
    assert tube.processing == ("Keep at 2–8 °C", "Keeps for 12 hours")


def test_supporting_info_round_trip_keeps_foreign_values() -> None:
    info = supporting_info.SupportingInfo("10", "ARM", 60, ("x", "y=1"))
    assert supporting_info.parse_supporting_info(str(info)) == info
    assert supporting_info.parse_supporting_info(" time=soon, ,z").values == ("time=soon", "z")


# --- properties -------------------------------------------------------------------------------------------------------

QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""By the clock they fail on a loaded machine."""

VOLUMES = st.integers(1, 60).map(lambda tenths: Decimal(tenths) / 10)
CODES = st.sampled_from([10, 11])


@st.composite
def baskets(draw: st.DrawFn, most: int = 6) -> list[BasketLine]:
    size = draw(st.integers(1, most))
    names = [f"i{n}" for n in range(size)]
    made = []
    for name in names:
        requirement = need(
            name,
            str(draw(VOLUMES)),
            draw(CODES),
            own_tube=draw(st.integers(0, 4)) == 0,
            incompatible=frozenset(draw(st.sets(st.sampled_from(names), max_size=2))) - {name},
            time_points=(TimePoint(0, "draw"), TimePoint(60, "draw again")) if draw(st.integers(0, 5)) == 0 else (),
        )
        extra = (need(name, str(draw(VOLUMES)), 20),) if draw(st.integers(0, 3)) == 0 else ()
        made.append(item(requirement, required=extra))
    return [BasketLine(n, each, each.options, f"g{n}" if draw(st.integers(0, 9)) else None) for n, each in enumerate(made)]


def wire(asked: Iterable[BasketLine]) -> bytes:
    answer = plan(asked)
    return exact_json.dumps(answer.as_json([None] * len(answer.tubes)))


@QUIET
@given(baskets(most=16), st.randoms(use_true_random=False))
def test_tubes_are_those_of_the_basket_in_any_order(asked: list[BasketLine], random: Random) -> None:
    """No volume exceeds its tube or gets lost, and no two that may not share a tube are in one."""
    tubes = plan(asked).tubes
    assert all(tube.quantity <= Decimal("5.0") for tube in tubes)
    needs = [each for line in asked for each in (*line.chosen_requirements, *line.item.required)]
    wanted = sum(each.volume * max(1, len(each.time_points)) for each in needs)
    assert sum(tube.quantity - Decimal("0.5") for tube in tubes) == wanted
    for tube in tubes:
        inside = [piece.need.requirement for piece in tube.parts]
        assert len(inside) == 1 or not any(each.own_tube for each in inside)
        assert not any(one.item_id in other.incompatible for one in inside for other in inside if one is not other)
    shuffled = random.sample(asked, len(asked))
    assert wire(shuffled) == wire(asked)


@QUIET
@given(baskets(most=16))
def test_each_guid_covered_and_no_other_appears(asked: list[BasketLine]) -> None:
    given_guids = {line.guid for line in asked if line.guid}
    answer = plan(asked)
    specimens = answer.as_json([None] * len(answer.tubes))["specimens"]
    assert {guid for each in specimens for guid in each["guids"]} == given_guids


def test_whole_basket_needs_no_more_tubes_than_parts() -> None:
    """Seventeen tests need no more tubes than six of them and the other eleven."""
    one, two = [10, 5, 3, 3, 3, 3], [12, 6, 6, 5, 4, 4, 4, 3, 3, 3, 3]  # 2.7 ml usable, seventeen tests
    assert [len(pack(sizes, 27, lambda _i, _j: True).tubes) for sizes in (one, two, one + two)] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("room", [1000, None])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.2])
def test_hardest_200_item_baskets_pack_quickly(room: int | None, density: float) -> None:
    random = Random(7)
    sizes = sorted((random.randint(200, 500) for _ in range(200)), reverse=True)
    apart = {(i, j) for i in range(200) for j in range(i) if random.random() < density}
    started = time.process_time()
    packing = pack(sizes, room, lambda i, j: (i, j) not in apart and (j, i) not in apart)
    assert time.process_time() - started < 1  # a quarter of a second at the most, on a machine that does nothing else
    assert sorted(i for tube in packing.tubes for i in tube) == list(range(200))


def test_tube_lists_items_in_fixed_order(sample: Catalogue) -> None:
    ids = [each for each in sample.contract("C-100").items if len(sample.contract("C-100").items[each].options) == 1]
    raw = [{"id": each, "guid": f"g{number}"} for number, each in enumerate(ids)]
    asked = basket.read_basket({"contract": "C-100", "analyticsrequests": raw}, sample.contracts, 99)
    groups = preanalytics.calculate(sample, asked.lines).groups
    assert all(len(group.tubes) == group.lower_bound for group in groups)
    tubes = [tube for group in groups for tube in group.tubes]
    assert tubes == sorted(tubes, key=lambda tube: (tube.kind.sort_key(), tube.sort_key()))
