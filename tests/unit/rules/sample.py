"""The sample order, which is right in everything, ways to change it, and what the rules say of it then."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, RuleContext
from lab_agent.rules.engine import Assessment, assess
from lab_agent.shared.code_systems import CodeSystems
from tests.harness.paths import CATALOGUE as FOLDER
from tests.unit.fhir.sample import Change, Wire, answers, parsed, pr1, pr2, put, s1, s2

SERVICE = "https://exchange.example/api/terminology/"
LAB = "https://lab.example/codes"
CATALOGUE = load_catalogue(FOLDER)
FACTS = Facts(
    now=dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC),
    systems=CodeSystems(
        base_url="https://exchange.example/api",
        lab_codes_url="https://lab.example/codes/",
        second_labels_system="https://lab.example/second-labels",
    ),
    known_contracts=frozenset({"C-100", "C-200"}),
    contract_codes_by_id={"c1": "C-100", "c2": "C-200"},
    own_guid="lab-guid",
)
ORDERED = dt.datetime(2026, 3, 2, 6, tzinfo=dt.UTC)
HOUR, MINUTE, SECOND = dt.timedelta(hours=1), dt.timedelta(minutes=1), dt.timedelta(seconds=1)


def history(catalogue: Catalogue | CatalogueHistory | None) -> CatalogueHistory | None:
    return CatalogueHistory.from_catalogue(catalogue) if isinstance(catalogue, Catalogue) else catalogue


def context(*changes: Change, catalogue: Catalogue | CatalogueHistory | None = CATALOGUE, **facts: Any) -> RuleContext:
    return RuleContext(parsed(*changes), history(catalogue), replace(FACTS, **facts))


def judge(*changes: Change, **known: Any) -> Assessment:
    """Assess the changed order; `known` are a catalogue, arguments of `assess`, and facts."""
    arguments = {name: known.pop(name) for name in ("severities", "messages", "released") if name in known}
    made = context(*changes, **known)
    return assess(made.order, catalogue=made.catalogue, facts=made.facts, **arguments)


def outcomes(*changes: Change, **known: Any) -> str:
    """The rules that found anything, each with what it does: `line.item=refuse order.shape=warn`."""
    found = {each.rule: each.severity.value for each in judge(*changes, **known).findings()}
    return " ".join(f"{rule}={severity}" for rule, severity in sorted(found.items()))


# --- other catalogues -------------------------------------------------------------------------------------------------


def without_item(item_id: str, catalogue: Catalogue = CATALOGUE, **changes: Any) -> Catalogue:
    contract = catalogue.contract("C-100")
    items = {key: value for key, value in contract.items.items() if key != item_id}
    return replace(catalogue, contracts={**catalogue.contracts, "C-100": replace(contract, items=items, **changes)})


def with_item(item_id: str, catalogue: Catalogue = CATALOGUE, **changes: Any) -> Catalogue:
    """The catalogue with another test of that id in contract C-100."""
    contract = catalogue.contract("C-100")
    items = {**contract.items, item_id: replace(contract.items[item_id], **changes)}
    return replace(catalogue, contracts={**catalogue.contracts, "C-100": replace(contract, items=items)})


def with_requirement(**changes: Any) -> Catalogue:
    """The catalogue with another requirement of the first test."""
    (option,) = CATALOGUE.contract("C-100").items["001.001"].options
    return with_item("001.001", options=(replace(option, **changes),))


# --- parts of the order, and changes of them --------------------------------------------------------------------------


def tube(wire: Wire) -> Any:
    return s1(wire)["container"][0]


def both(*changes: Change) -> Change:
    def change(wire: Wire) -> None:
        for each in changes:
            each(wire)

    return change


def coded(system: str, code: str) -> dict[str, Any]:
    return {"coding": [{"system": SERVICE + system, "code": code}]}


def item(code: str) -> Change:
    return put(pr1, "code", "coding", 0, "code", to=code)


def specimen(code: str, container: str, method: str = "Venepuncture") -> Change:
    def change(wire: Wire) -> None:
        s1(wire)["type"]["coding"][0]["code"] = code
        s1(wire)["collection"]["method"]["coding"][0]["code"] = method
        s1(wire)["extension"][0]["valueString"] = f"specimen={code}"
        tube(wire)["type"]["coding"][0]["code"] = container
        tube(wire)["specimenQuantity"]["value"] = Decimal(20)

    return change


def answer(link_id: str, value: Any) -> Change:
    return lambda wire: answers(wire)["item"].append({"linkId": link_id, "answer": [value]})


def alone(wire: Wire) -> None:
    """Only the first line is left."""
    del wire["line_tasks"][1], wire["resources"]["ProcedureRequest/pr2"], wire["resources"]["Specimen/s2"]


def second_subject(wire: Wire) -> None:
    pr2(wire)["subject"] = {"reference": "patient/p2"}
    s2(wire)["subject"] = {"reference": "patient/p2"}
    wire["resources"]["Patient/p2"] = {"gender": "male", "birthDate": "2001-01-01"}
    answers(wire)["source"] = None


def elsewhere(wire: Wire) -> None:
    for task in wire["line_tasks"]:
        task["basedOn"] = [{"reference": "https://other.example/api/procedurerequest/1"}]


def contracts(*links: dict[str, Any]) -> Change:
    """Both lines have these links to contracts."""
    return both(*(put(where, "supportingInfo", to=[dict(each) for each in links]) for where in (pr1, pr2)))


def contract(code: str) -> dict[str, str]:
    """A contract by its identifier."""
    return {"system": LAB + "/contract", "value": code}


def container(label: str, kind: str, quantity: Any) -> dict[str, Any]:
    label_of_ours = {"system": LAB + "/labels", "value": label}
    return {"identifier": [label_of_ours], "type": coded("specimen_type", kind), "specimenQuantity": {"value": quantity}}


def tolerance(*times: str, points: tuple[int, ...] | None = (0, 60, 120, 180)) -> Change:
    """The second line becomes a tolerance test with samples at these times, which tell these time points, or none."""

    def change(wire: Wire) -> None:
        template = wire["resources"].pop("Specimen/s2")
        pr2(wire)["code"]["coding"][0]["code"] = "006.001"
        pr2(wire)["specimen"] = [{"reference": f"specimen/g{n}"} for n in range(len(times))]
        methods = ("before the load", "60 minutes after the load", "120 minutes after the load")
        for n, time in enumerate(times):
            info = f"specimen=13,time={points[n]}" if points else "specimen=13"
            wire["resources"][f"Specimen/g{n}"] = {
                **template,
                "type": coded("specimen-type", "13"),
                "collection": {
                    "method": coded("treatment_protocol", f"Venepuncture {methods[n % 3]}"),
                    **({"collectedDateTime": f"2026-03-02T{time}+03:00"} if time else {}),
                },
                "container": [container(f"2000000{n}", "FLU2", Decimal("0.7"))],
                "extension": [{"url": "https://exchange.example/api/extra/supportingInfo", "valueString": info}],
            }

    return change


def tube_twice(wire: Wire) -> None:
    s1(wire)["container"].append({**tube(wire)})


def second_label(code: str, value: str | None) -> Change:
    kinds = {"042.076": ("50", "FORM40", "Biopsy, into formalin at once")}

    def change(wire: Wire) -> None:
        both(item(code), specimen(*kinds.get(code, ("31", "LBC20", "Brush, rinsed in the vial"))))(wire)
        answer("cycle-day", {"valueInteger": 5})(wire)
        both(answer("diagnosis", {"valueString": "x"}), answer("material", {"valueString": "x"}))(wire)
        if value:
            tube(wire)["identifier"].append({"system": "https://lab.example/second-labels", "value": value})
        answers(wire)["item"][0]["item"] = answers(wire)["item"][0]["item"][:1]

    return change


def clinic_number(value: str) -> Change:
    return lambda wire: tube(wire)["identifier"].append({"system": "https://clinic.example/racks", "value": value})


OLD_ORDER = "12345-AB1CD-12345678"


def follow_up(number: str | None, system: str | None = LAB + "/mis") -> Change:
    def change(wire: Wire) -> None:
        both(item("190.1558"), specimen("51", "SLIDE", "Slides and blocks of the earlier study"))(wire)
        if number:
            pr1(wire)["basedOn"] = [{"identifier": {"system": system, "value": number}}]

    return change


def rights(*entries: tuple[str, str]) -> list[dict[str, str]]:
    return [{"system": system, "code": code} for system, code in entries]


def body_answers(wire: Wire) -> None:
    for link_id in ("height", "weight", "diuresis"):
        answer(link_id, {"valueInteger": 0})(wire)


def same_tube(wire: Wire) -> None:
    """The second Specimen is what the first one is; both tests are made from it."""
    pr2(wire)["code"]["coding"][0]["code"] = "001.010"
    s2(wire).update({name: s1(wire)[name] for name in ("type", "extension")})
    s2(wire)["collection"] = dict(s1(wire)["collection"])
    s2(wire)["container"] = [{**tube(wire)}]


def collected(at: str | dt.datetime) -> Change:
    return put(s1, "collection", "collectedDateTime", to=at if isinstance(at, str) else at.isoformat())


def whole(wire: Wire) -> Any:
    return wire


def order_task(wire: Wire) -> Any:
    return wire["order_task"]
