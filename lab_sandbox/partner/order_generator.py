"""Generates any number of varied, valid orders from a nomenclature; the same seed gives the same plans.

A plan says what the clinic wants to order; `Clinic` makes an order of it. Orders follow the interface's rules: one biomaterial
type for each basket item, repeats only where the nomenclature allows them, and the number of the earlier order where the
follow-up study is ordered alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Literal

from lab_sandbox.partner.basket import Basket, BasketItem, choose_item
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.random_source import seeded_random

FOLLOW_UP_STUDY = "190.1558"
"""The study that, ordered alone, carries the number of the earlier order in basedOn (interface: order rule 4)."""

PatientKind = Literal["named", "anonymous", "reused"]
ContractLinkKind = Literal["reference", "absolute", "identifier"]

_NOTES = ("Fasting since 20:00", "Difficult vein, second attempt", "Call the ward when ready", "«urgent» — ß, Ω & <tags>")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """One order as the clinic wants it. `seed` determines all later random choices."""

    seed: str
    basket: Basket
    patient: PatientKind = "named"
    contract_link: ContractLinkKind = "reference"
    merge_multiple_specimen_lines: bool = False
    notes: tuple[str, ...] = ()
    notify: tuple[tuple[str, bool], ...] = ()
    old_order_number: str | None = None


@dataclass(frozen=True, slots=True)
class OrderVariety:
    """How varied the orders are: the maximum of tests, and the shares of anonymous and reused patients (0 to 1)."""

    max_tests: int = 6
    anonymous_share: float = 0.15
    reused_share: float = 0.15


def generate_plans(
    contract: str, items: Sequence[Json], seed: int | str, variety: OrderVariety | None = None
) -> Iterator[OrderPlan]:
    """Endless plans with these orderable nomenclature items."""
    variety = variety or OrderVariety()
    for number in count():
        yield generate_plan(contract, items, f"{seed}/{number}", variety)


def generate_plan(contract: str, items: Sequence[Json], seed: str, variety: OrderVariety) -> OrderPlan:
    """The plan for one seed."""
    rng = seeded_random(seed)
    tests = _choose_tests(items, rng, variety.max_tests)
    follow_up = [item["id"] for item in tests] == [FOLLOW_UP_STUDY]
    return OrderPlan(
        seed=seed,
        basket=Basket(contract, tuple(_choose_basket_items(tests, rng))),
        patient=_choose_patient_kind(rng, variety),
        contract_link=rng.choice(("reference", "absolute", "identifier")),
        merge_multiple_specimen_lines=rng.random() < 0.5,
        notes=tuple(rng.sample(_NOTES, rng.choice((0, 0, 1, 2)))),
        notify=tuple((channel, rng.random() < 0.5) for channel in ("sms", "email") if rng.random() < 0.3),
        old_order_number=random_old_order_number(rng) if follow_up else None,
    )


def random_old_order_number(rng: Random) -> str:
    """A number of the form 00000-XXXXX-00000000 (interface: order rule 4)."""
    letters = "".join(rng.choices(_LETTERS, k=5))
    return f"{rng.randrange(10**5):05d}-{letters}-{rng.randrange(10**8):08d}"


def _choose_tests(items: Sequence[Json], rng: Random, max_tests: int) -> list[Json]:
    first = rng.choice(items)
    if first["id"] == FOLLOW_UP_STUDY and rng.random() < 0.5:
        return [first]
    others = [item for item in items if item["id"] != first["id"]]
    return [first, *rng.sample(others, min(len(others), rng.randrange(max_tests)))]


def _choose_basket_items(tests: Sequence[Json], rng: Random) -> Iterator[BasketItem]:
    for item in tests:
        options = item.get("specimen") or []
        if item.get("multiple_specimen") and options:
            for option in rng.sample(options, rng.randint(1, len(options))):
                yield choose_item(item, rng, option=option)
        else:
            first = choose_item(item, rng)
            yield first
            if item.get("allow_multiple_items") and rng.random() < 0.4:
                yield choose_item(item, rng)


def _choose_patient_kind(rng: Random, variety: OrderVariety) -> PatientKind:
    drawn = rng.random()
    if drawn < variety.anonymous_share:
        return "anonymous"
    return "reused" if drawn < variety.anonymous_share + variety.reused_share else "named"
