"""The orders of the demo: what each one shows, and what the laboratory does with it."""

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
"""The test that the LIS simulator reports in stages, and the one whose sample it rejects."""
MICROBIOLOGY_ITEM = "050.001"
"""The test that goes to the second laboratory system, where there is one."""
UNKNOWN_ITEM = "999.999"
"""A code that no nomenclature has, as sent by a clinic that did not refresh its list."""
_REPLACED_ITEM = "003.002"
NotificationChoices = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One order: a short name, what it shows, its plan, the change made to its bundle, and the item codes that get no result."""

    name: str
    title: str
    plan: OrderPlan
    change_bundle: BundleChange | None = None
    unknown_items: frozenset[str] = frozenset()
    rejected_items: frozenset[str] = frozenset()
    staged: bool = False


def build_scenarios(contract: str, nomenclature: Sequence[Json]) -> list[Scenario]:
    """All scenarios; `DemoError` names a test that the nomenclature lacks."""
    items_by_code = {item["id"]: item for item in nomenclature}

    def plan(name: str, *items: str, patient: PatientKind = "named", notify: NotificationChoices = ()) -> OrderPlan:
        rng = seeded_random("demo", name)
        found = [_find_item(items_by_code, item) for item in items]
        basket = tuple(choose_item(item, rng, option=_default_specimen(item)) for item in found)
        return OrderPlan(seed=f"demo/{name}", basket=Basket(contract, basket), patient=patient, notify=notify)

    return [
        Scenario(
            name="shared-tubes",
            title="several tests that share tubes",
            plan=plan(
                "shared-tubes", "001.001", "002.001", "002.002", "002.006", "003.001", notify=(("sms", True), ("email", False))
            ),
        ),
        Scenario(
            name="unknown-code",
            title="one line has a code that no longer exists",
            plan=plan("unknown-code", "001.001", "002.007", _REPLACED_ITEM),
            change_bundle=_use_unknown_code,
            unknown_items=frozenset({UNKNOWN_ITEM}),
        ),
        Scenario(name="anonymous", title="an anonymous order", plan=plan("anonymous", "190.100", patient="anonymous")),
        Scenario(
            name="culture",
            title="a result that is preliminary, then final, then corrected",
            plan=plan("culture", STAGED_ITEM),
            staged=True,
        ),
        Scenario(
            name="special-studies",
            title="two barcodes, a tolerance test, 24-hour urine, and rare value forms",
            plan=plan("special-studies", "042.036", "006.001", "002.015", "005.001", "005.002", "005.010"),
        ),
        Scenario(
            name="rejected-sample",
            title="a haemolysed sample that the laboratory rejects",
            plan=plan("rejected-sample", "002.003", HAEMOLYSED_ITEM),
            rejected_items=frozenset({HAEMOLYSED_ITEM}),
        ),
    ]


def build_two_systems_plan(contract: str, nomenclature: Sequence[Json]) -> OrderPlan:
    """A blood count and a culture in one order; `DemoError` names a test that the nomenclature lacks."""
    items_by_code, rng = {item["id"]: item for item in nomenclature}, seeded_random("demo", "two-systems")
    found = [_find_item(items_by_code, item) for item in ("001.001", MICROBIOLOGY_ITEM)]
    basket = tuple(choose_item(item, rng, option=_default_specimen(item)) for item in found)
    return OrderPlan(seed="demo/two-systems", basket=Basket(contract, basket), patient="named")


def _find_item(items_by_code: Mapping[str, Json], item: str) -> Json:
    if item not in items_by_code:
        raise DemoError(f"The nomenclature lacks test {item}, which the demo orders. Use the catalogue that comes with the demo.")
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
            entry["resource"]["code"]["text"] = "A test from last year's list"
    return bundle
