"""Everything that the stand-in says about one order, in the order in which it says it.

A result that grows: a culture is reported while it grows, again when it is read, and once more when a mistake is found.

Each stage is a new version of the same report. What did not change between two versions is the same in both.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from lab_sandbox.demo.lis.pdf import build_report_pdf
from lab_sandbox.demo.lis.values import LOINC, SNOMED, amount, observations
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.random_source import seeded_random

STAGES = ("preliminary", "final", "corrected")

_ORGANISM_CODING = {"system": LOINC, "code": "630-4", "display": "Bacteria identified in Urine by Culture"}
_COUNT_CODING = {"system": LOINC, "code": "19090-0", "display": "Colony count [#/volume] in Urine"}


def culture_report(stage: str) -> tuple[str, list[Json]]:
    """Report status and observations of a stage. A correction is final again, with what it changes `amended`."""
    if stage == "preliminary":
        return "preliminary", [_organism_observation("preliminary", {"value_string": "Growth of Gram-negative rods"})]
    if stage == "final":
        return "final", [_organism_observation("final", _organism_value("112283007", "Escherichia coli")), _count_observation()]
    return "final", [_organism_observation("amended", _organism_value("56415008", "Klebsiella pneumoniae")), _count_observation()]


def _organism_observation(status: str, value: Json) -> Json:
    return {"id": "organism", "code": _ORGANISM_CODING, "status": status, **value}


def _count_observation() -> Json:
    return {"id": "count", "code": _COUNT_CODING, "status": "final", "value_quantity": amount(Decimal(100000), "{CFU}/mL")}


def _organism_value(code: str, display: str) -> Json:
    return {"value_codeable_concept": {"coding": [{"system": SNOMED, "code": code, "display": display}], "text": display}}


HAEMOLYSED_REASON = "The sample is haemolysed and cannot be measured"


@dataclass(frozen=True, slots=True)
class SimulatorBehaviour:
    """Which tests are reported in stages (`staged`), and of which the stand-in refuses the sample (`refused`): item codes.

    `plain`: values are said in the forms that HL7 v2 has.
    """

    staged_items: frozenset[str] = frozenset()
    rejected_items: frozenset[str] = frozenset()
    use_value_fallbacks: bool = False


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """One file for the results folder, with the documents that lie beside it; `stage` is what it waits for, if anything."""

    name: str
    body: Json
    documents: dict[str, bytes] = field(default_factory=dict)
    stage: str | None = None


def build_messages(order: Json, behaviour: SimulatorBehaviour, now: datetime) -> Iterator[ResultMessage]:
    """The messages about an order; the same order gives the same ones, but for the time at which each was issued.

    The order-wide document comes before the results of the lines, so that it meets an order that is still open.
    """
    performed = [line for line in order["lines"] if line["item"] not in behaviour.rejected_items]
    if performed:
        yield _order_document(order, performed, now)
    for line in order["lines"]:
        if line["item"] in behaviour.rejected_items:
            yield _rejection(order, line)
        elif line["item"] in behaviour.staged_items:
            yield from _staged_reports(order, line, now)
        else:
            yield _final_report(order, line, now)


def _final_report(order: Json, line: Json, now: datetime) -> ResultMessage:
    """A final report of one line, its printed form within the message."""
    collected = collected_at(order, line)
    found = observations(line["item"], seeded_random(line["key"]), collected)
    pdf = build_report_pdf(line.get("text") or line["item"], order["requisition"]["value"], found)
    document = {"content": base64.b64encode(pdf).decode("ascii"), "title": line.get("text") or line["item"]}
    body = _report_body(
        order, line["key"], "final", now, effective=collected, lines=[line["key"]], observations=found, documents=[document]
    )
    return ResultMessage(f"{order['key']}-{line['key']}.json", body)


def _staged_reports(order: Json, line: Json, now: datetime) -> Iterator[ResultMessage]:
    for version, stage in enumerate(STAGES, 1):
        status, found = culture_report(stage)
        body = _report_body(
            order, line["key"], status, now, version=version, effective=collected_at(order, line), lines=[line["key"]],
            observations=found,
        )  # fmt: skip
        yield ResultMessage(f"{order['key']}-{line['key']}-{version}.json", body, stage=stage if version > 1 else None)


def _order_document(order: Json, lines: list[Json], now: datetime) -> ResultMessage:
    """One document about the whole order, as a file beside the message; it completes no line."""
    name = f"{order['key']}-all.pdf"
    found = [one for line in lines for one in observations(line["item"], seeded_random(line["key"]), collected_at(order, line))]
    pdf = build_report_pdf("Summary of the order", order["requisition"]["value"], found)
    document = {"file": name, "title": "Summary of the order"}
    effective = datetime.fromisoformat(order["ordered_at"])
    body = _report_body(order, f"{order['key']}-all", "final", now, effective=effective, completes=[], documents=[document])
    return ResultMessage(f"{order['key']}-all.json", body, {name: pdf})


def _rejection(order: Json, line: Json) -> ResultMessage:
    reason = {"line": line["key"], "reason": HAEMOLYSED_REASON}
    body = {"kind": "rejection", "order": order["key"], "not_performed": [reason], "collect_again": True}
    return ResultMessage(f"{order['key']}-{line['key']}-refused.json", body)


def _report_body(order: Json, report_id: str, status: str, now: datetime, *, effective: datetime, **more: object) -> Json:
    times = {"effective": effective.isoformat(timespec="seconds"), "issued": now.isoformat(timespec="milliseconds")}
    return {"kind": "report", "report_id": report_id, "order": order["key"], "status": status, **times, **more}


def collected_at(order: Json, line: Json) -> datetime:
    """When the line's first specimen was collected; where nobody says, when the order was made."""
    own = set(line.get("specimens", ()))
    times = (one.get("collected_at") for one in order.get("specimens", ()) if one["id"] in own)
    return min((datetime.fromisoformat(time) for time in times if time), default=datetime.fromisoformat(order["ordered_at"]))
