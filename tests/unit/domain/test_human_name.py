from __future__ import annotations

from datetime import date

import pytest

from lab_agent.fhir.human_name import HumanName, choose_name

TODAY = date(2026, 3, 2)
OLD = HumanName(use="old", family="Byron", given=("Ada",), end="2001")
USUAL = HumanName(use="usual", family="Lovelace", given=("Ada",))
PLAIN = HumanName(family="Noel", given=("Ada",))
MAIDEN = HumanName(use="maiden", family="Milbanke")
TEXT = HumanName(text="Ada Lovelace")
ENDED = HumanName(use="official", family="Byron", end="2025-12")
FUTURE = HumanName(use="official", family="Next", start="2026-04-01")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((ENDED, MAIDEN), MAIDEN),
        ((FUTURE, PLAIN), PLAIN),
        ((OLD,), OLD),
        ((HumanName(use="official"), TEXT), TEXT),
        ((HumanName(use="unheard-of", family="Odd"), MAIDEN), HumanName(use="unheard-of", family="Odd")),
        ((OLD, HumanName(use="maiden", family="Milbanke", end="2001")), HumanName(use="maiden", family="Milbanke", end="2001")),
        ((HumanName(),), None),
    ],
)
def test_name_is_chosen_by_use_and_period(names: tuple[HumanName, ...], chosen: HumanName | None) -> None:
    assert choose_name(names, TODAY) == chosen


def test_name_as_text_equals_name_in_parts() -> None:
    assert TEXT.comparison_key == USUAL.comparison_key
    assert USUAL.comparison_key == ("ada", "lovelace")
    assert HumanName(given=("Ada",)).comparison_key == ("ada",)
    assert HumanName().comparison_key == ()


@pytest.mark.parametrize(
    ("field", "days", "current"),
    [
        ("start", ("2026", "2026-03", "2026-03-02"), True),
        ("start", ("2026-03-03", "2027"), False),
        ("end", ("2026", "2026-03", "2026-03-02"), True),
        ("end", ("2026-03-01", "2025"), False),
    ],
)
def test_period_is_from_its_first_day_to_its_last(field: str, days: tuple[str, ...], current: bool) -> None:
    assert {HumanName(family="King", **{field: day}).is_current(TODAY) for day in days} == {current}
    assert not HumanName(use="old", family="King").is_current(TODAY)
    assert HumanName(use="maiden", family="King").is_current(TODAY)


@pytest.mark.parametrize(
    "uses", [("official", "usual", None, "temp", "nickname", "anonymous", "maiden"), ("official", "strange", "temp")]
)
def test_uses_are_preferred_in_order(uses: tuple[str | None, ...]) -> None:
    names = [HumanName(use=use, family="King") for use in uses]
    while names:
        chosen = choose_name(tuple(reversed(names)), TODAY)
        assert chosen is names[0]
        names.remove(names[0])
