"""The orders of the demo: what each is there to show, and what the laboratory does with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab_sandbox.demo.trouble import DemoError
from lab_sandbox.partner.basket import Basket, chosen
from lab_sandbox.partner.clinic import Change
from lab_sandbox.partner.generator import PatientKind, Plan
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.seeded import chance

STAGED, HAEMOLYSED = "050.002", "002.004"
"""Tests that the stand-in reports in stages, and of which it refuses the sample."""
WITHDRAWN = "999.999"
"""A code that no nomenclature has: what a clinic sends that did not refresh its list."""
_SPOILT = "003.002"
Notify = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One order: a short name, what it shows, the plan, what is made wrong in its bundle; `bad` and `refused` are item codes."""

    name: str
    title: str
    plan: Plan
    change: Change | None = None
    bad: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    staged: bool = False


def scenes(contract: str, nomenclature: Sequence[Json]) -> list[Scene]:
    """All of them; `DemoError` names a test that the nomenclature lacks."""
    offer = {item["id"]: item for item in nomenclature}

    def plan(name: str, *items: str, patient: PatientKind = "named", notify: Notify = ()) -> Plan:
        luck = chance("demo", name)
        basket = tuple(chosen(_offered(offer, item), luck, option=_usual(offer[item])) for item in items)
        return Plan(seed=f"demo/{name}", basket=Basket(contract, basket), patient=patient, notify=notify)

    return [
        Scene(
            name="shared",
            title="several tests sharing tubes",
            plan=plan("shared", "001.001", "002.001", "002.002", "002.006", "003.001", notify=(("sms", True), ("email", False))),
        ),
        Scene(
            name="bad-line",
            title="one line with a code that no longer exists",
            plan=plan("bad-line", "001.001", "002.007", _SPOILT),
            change=_with_withdrawn_code,
            bad=frozenset({WITHDRAWN}),
        ),
        Scene(name="anonymous", title="an anonymous order", plan=plan("anonymous", "190.100", patient="anonymous")),
        Scene(
            name="growing",
            title="a culture: preliminary, final, corrected",
            plan=plan("growing", STAGED),
            staged=True,
        ),
        Scene(
            name="special",
            title="two barcodes, a tolerance test, urine of 24 hours, and rarer forms of values",
            plan=plan("special", "042.036", "006.001", "002.015", "005.001", "005.002", "005.010"),
        ),
        Scene(
            name="haemolysed",
            title="a sample that the laboratory has to refuse",
            plan=plan("haemolysed", "002.003", HAEMOLYSED),
            refused=frozenset({HAEMOLYSED}),
        ),
    ]


def _offered(offer: Mapping[str, Json], item: str) -> Json:
    if item not in offer:
        raise DemoError(f"the nomenclature has no test {item}, which the demo orders; use the catalogue that comes with it")
    return offer[item]


def _usual(item: Json) -> Json | None:
    """The first specimen option: serum where there is a choice, so that tubes are shared."""
    options = item.get("specimen") or []
    return options[0] if options else None


def _with_withdrawn_code(bundle: Json) -> Json:
    for entry in bundle["entry"]:
        coding = entry["resource"].get("code", {}).get("coding", [{}])[0]
        if coding.get("code") == _SPOILT:
            coding["code"] = WITHDRAWN
            entry["resource"]["code"]["text"] = "A test of last year's list"
    return bundle
