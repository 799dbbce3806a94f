"""Any number of varied, valid orders from a nomenclature: the same seed gives the same plans.

A plan says what the clinic wants (tests, biomaterial, whose, with which notes and links); the flow with the service makes the
order of it. Orders are valid by the interface's rules: one biomaterial type for each basket item, no repeats but where the
nomenclature allows them, the follow-up study alone and with the number of the earlier order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Literal

from lab_sandbox.partner.basket import Basket, BasketItem, chosen
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.seeded import chance

FOLLOW_UP = "190.1558"
"""The study that carries the old order number in basedOn and is ordered alone (interface: order rule 4)."""

PatientKind = Literal["named", "anonymous", "reused"]
LinkKind = Literal["reference", "absolute", "identifier"]

_NOTES = ("Fasting since 20:00", "Difficult vein, second attempt", "Call the ward when ready", "«urgent» — ß, Ω & <tags>")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One order as the clinic wants it. `seed` decides everything that is left to chance later on."""

    seed: str
    basket: Basket
    patient: PatientKind = "named"
    contract_link: LinkKind = "reference"
    one_line_for_several: bool = False
    notes: tuple[str, ...] = ()
    notify: tuple[tuple[str, bool], ...] = ()
    old_order_number: str | None = None


@dataclass(frozen=True, slots=True)
class Variety:
    """How varied the orders are: tests at most, and how often a patient is anonymous or known already (0 to 1)."""

    most_tests: int = 6
    anonymous: float = 0.15
    reused: float = 0.15


def plans(contract: str, items: Sequence[Json], seed: int | str, variety: Variety | None = None) -> Iterator[Plan]:
    """Plans without end for these orderable nomenclature items."""
    kinds = variety or Variety()
    for number in count():
        yield plan(contract, items, f"{seed}/{number}", kinds)


def plan(contract: str, items: Sequence[Json], seed: str, variety: Variety) -> Plan:
    """The plan of one seed."""
    luck = chance(seed)
    tests = _tests(items, luck, variety.most_tests)
    follow_up = [item["id"] for item in tests] == [FOLLOW_UP]
    return Plan(
        seed=seed,
        basket=Basket(contract, tuple(_basket_items(tests, luck))),
        patient=_patient_kind(luck, variety),
        contract_link=luck.choice(("reference", "absolute", "identifier")),
        one_line_for_several=luck.random() < 0.5,
        notes=tuple(luck.sample(_NOTES, luck.choice((0, 0, 1, 2)))),
        notify=tuple((channel, luck.random() < 0.5) for channel in ("sms", "email") if luck.random() < 0.3),
        old_order_number=old_order_number(luck) if follow_up else None,
    )


def old_order_number(luck: Random) -> str:
    """A number of shape 00000-XXXXX-00000000 (interface: order rule 4)."""
    letters = "".join(luck.choices(_LETTERS, k=5))
    return f"{luck.randrange(10**5):05d}-{letters}-{luck.randrange(10**8):08d}"


def _tests(items: Sequence[Json], luck: Random, most: int) -> list[Json]:
    first = luck.choice(items)
    if first["id"] == FOLLOW_UP:
        return [first]
    others = [item for item in items if item["id"] not in {FOLLOW_UP, first["id"]}]
    return [first, *luck.sample(others, min(len(others), luck.randrange(most)))]


def _basket_items(tests: Sequence[Json], luck: Random) -> Iterator[BasketItem]:
    for item in tests:
        options = item.get("specimen") or []
        if item.get("multiple_specimen") and options:
            for option in luck.sample(options, luck.randint(1, len(options))):
                yield chosen(item, luck, option=option)
        else:
            first = chosen(item, luck)
            yield first
            if item.get("allow_multiple_items") and luck.random() < 0.4:
                yield chosen(item, luck)


def _patient_kind(luck: Random, variety: Variety) -> PatientKind:
    drawn = luck.random()
    if drawn < variety.anonymous:
        return "anonymous"
    return "reused" if drawn < variety.anonymous + variety.reused else "named"
