"""The orders of the demo: what each is there to show, and what the laboratory does with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab_sandbox.demo.errors import DemoError
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.clinic import BundleChange
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_generator import OrderPlan, PatientKind
from lab_sandbox.partner.random_source import seeded_random

STAGED_ITEM, HAEMOLYSED_ITEM = "050.002", "002.004"
"""Tests that the stand-in reports in stages, and of which it refuses the sample."""
UNKNOWN_ITEM = "999.999"
"""A code that no nomenclature has: what a clinic sends that did not refresh its list."""
_REPLACED_ITEM = "003.002"
NotificationChoices = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One order: a short name, what it shows, the plan, what is made wrong in its bundle; `bad` and `refused` are item codes."""

    name: str
    title: str
    plan: OrderPlan
    change_bundle: BundleChange | None = None
    unknown_items: frozenset[str] = frozenset()
    rejected_items: frozenset[str] = frozenset()
    staged: bool = False


def build_scenarios(contract: str, nomenclature: Sequence[Json]) -> list[Scenario]:
    """All of them; `DemoError` names a test that the nomenclature lacks."""
    offer = {item["id"]: item for item in nomenclature}

    def plan(name: str, *items: str, patient: PatientKind = "named", notify: NotificationChoices = ()) -> OrderPlan:
        luck = seeded_random("demo", name)
        basket = tuple(choose_item(_find_item(offer, item), luck, option=_default_specimen(offer[item])) for item in items)
        return OrderPlan(seed=f"demo/{name}", basket=Basket(contract, basket), patient=patient, notify=notify)

    return [
        Scenario(
            name="shared",
            title="several tests sharing tubes",
            plan=plan("shared", "001.001", "002.001", "002.002", "002.006", "003.001", notify=(("sms", True), ("email", False))),
        ),
        Scenario(
            name="bad-line",
            title="one line with a code that no longer exists",
            plan=plan("bad-line", "001.001", "002.007", _REPLACED_ITEM),
            change_bundle=_use_unknown_code,
            unknown_items=frozenset({UNKNOWN_ITEM}),
        ),
        Scenario(name="anonymous", title="an anonymous order", plan=plan("anonymous", "190.100", patient="anonymous")),
        Scenario(
            name="growing",
            title="a culture: preliminary, final, corrected",
            plan=plan("growing", STAGED_ITEM),
            staged=True,
        ),
        Scenario(
            name="special",
            title="two barcodes, a tolerance test, urine of 24 hours, and rarer forms of values",
            plan=plan("special", "042.036", "006.001", "002.015", "005.001", "005.002", "005.010"),
        ),
        Scenario(
            name="haemolysed",
            title="a sample that the laboratory has to refuse",
            plan=plan("haemolysed", "002.003", HAEMOLYSED_ITEM),
            rejected_items=frozenset({HAEMOLYSED_ITEM}),
        ),
    ]


def _find_item(items_by_code: Mapping[str, Json], item: str) -> Json:
    if item not in items_by_code:
        raise DemoError(f"the nomenclature has no test {item}, which the demo orders; use the catalogue that comes with it")
    return items_by_code[item]


def _default_specimen(item: Json) -> Json | None:
    """The first specimen option: serum where there is a choice, so that tubes are shared."""
    options = item.get("specimen") or []
    return options[0] if options else None


def _use_unknown_code(bundle: Json) -> Json:
    for entry in bundle["entry"]:
        coding = entry["resource"].get("code", {}).get("coding", [{}])[0]
        if coding.get("code") == _REPLACED_ITEM:
            coding["code"] = UNKNOWN_ITEM
            entry["resource"]["code"]["text"] = "A test of last year's list"
    return bundle
