"""The messages that the LIS simulator sends about one order, in the order in which it sends them.

A culture is reported in stages: while it grows, when it is read, and once more as a correction. Each stage is a new version of
the same report. For HL7 v2, which lacks some value forms, those values are sent as text.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from lab_sandbox.demo.lis.pdf import build_report_pdf
from lab_sandbox.demo.lis.values import LOINC, SNOMED, amount, observations
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.random_source import seeded_random

HAEMOLYSED_REASON = "The sample is haemolysed and cannot be measured"
STAGES = ("preliminary", "final", "corrected")

_ORGANISM_CODING = {"system": LOINC, "code": "630-4", "display": "Bacteria identified in Urine by Culture"}
_COUNT_CODING = {"system": LOINC, "code": "19090-0", "display": "Colony count [#/volume] in Urine"}
_UNSUPPORTED_FIELDS = frozenset({"value_sampled_data", "value_period", "value_attachment", "id"})


@dataclass(frozen=True, slots=True)
class SimulatorBehaviour:
    """Item codes of the tests that are reported in stages, and of those whose sample is rejected.

    `use_value_fallbacks`: values are sent in the forms that HL7 v2 has.
    """

    staged_items: frozenset[str] = frozenset()
    rejected_items: frozenset[str] = frozenset()
    use_value_fallbacks: bool = False


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """One file for the results folder, with the documents beside it; `stage` is what it waits for, if anything."""

    name: str
    body: Json
    documents: dict[str, bytes] = field(default_factory=dict)
    stage: str | None = None


def build_messages(order: Json, behaviour: SimulatorBehaviour, now: datetime) -> Iterator[ResultMessage]:
    """The messages about an order; the same order gives the same messages, except for the time of issue.

    The order-wide document comes before the results of the lines, so that it arrives while the order is still open.
    """
    for message in _build_messages(order, behaviour, now):
        yield _apply_value_fallbacks(message) if behaviour.use_value_fallbacks else message


def _build_messages(order: Json, behaviour: SimulatorBehaviour, now: datetime) -> Iterator[ResultMessage]:
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
    """A final report of one line, with its PDF embedded."""
    collected = _collected_at(order, line)
    found = observations(line["item"], seeded_random(line["key"]), collected)
    pdf = build_report_pdf(line.get("text") or line["item"], order["requisition"]["value"], found)
    document = {"content": base64.b64encode(pdf).decode("ascii"), "title": line.get("text") or line["item"]}
    body = _report_body(
        order, line["key"], "final", now, effective=collected, lines=[line["key"]], observations=found, documents=[document]
    )
    return ResultMessage(f"{order['key']}-{line['key']}.json", body)


def _staged_reports(order: Json, line: Json, now: datetime) -> Iterator[ResultMessage]:
    for version, stage in enumerate(STAGES, 1):
        status, found = _culture_report(stage)
        body = _report_body(
            order, line["key"], status, now, version=version, effective=_collected_at(order, line), lines=[line["key"]],
            observations=found,
        )  # fmt: skip
        yield ResultMessage(f"{order['key']}-{line['key']}-{version}.json", body, stage=stage if version > 1 else None)


def _order_document(order: Json, lines: list[Json], now: datetime) -> ResultMessage:
    """One document about the whole order, as a file beside the message; it completes no line."""
    name = f"{order['key']}-all.pdf"
    found = [one for line in lines for one in observations(line["item"], seeded_random(line["key"]), _collected_at(order, line))]
    pdf = build_report_pdf("Summary of the order", order["requisition"]["value"], found)
    document = {"file": name, "title": "Summary of the order"}
    effective = datetime.fromisoformat(order["ordered_at"])
    body = _report_body(order, f"{order['key']}-all", "final", now, effective=effective, completes=[], documents=[document])
    return ResultMessage(f"{order['key']}-all.json", body, {name: pdf})


def _rejection(order: Json, line: Json) -> ResultMessage:
    reason = {"line": line["key"], "reason": HAEMOLYSED_REASON}
    body = {"kind": "rejection", "order": order["key"], "not_performed": [reason], "collect_again": True}
    return ResultMessage(f"{order['key']}-{line['key']}-rejected.json", body)


def _report_body(order: Json, report_id: str, status: str, now: datetime, *, effective: datetime, **more: object) -> Json:
    times = {"effective": effective.isoformat(timespec="seconds"), "issued": now.isoformat(timespec="milliseconds")}
    return {"kind": "report", "report_id": report_id, "order": order["key"], "status": status, **times, **more}


def _culture_report(stage: str) -> tuple[str, list[Json]]:
    """Report status and observations of a stage. A correction is final again, and what it changes is `amended`."""
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


def _apply_value_fallbacks(message: ResultMessage) -> ResultMessage:
    """The message in the value forms of HL7 v2; an attachment that is a value becomes a document of the report."""
    found = message.body.get("observations")
    if not found:
        return message
    attachments = [one["value_attachment"] for one in found if "value_attachment" in one]
    body = {**message.body, "observations": [_replace_unsupported(one) for one in found]}
    if attachments:
        body["documents"] = [*body.get("documents", ()), *attachments]
    return replace(message, body=body)


def _replace_unsupported(observation: Json) -> Json:
    changed = {key: value for key, value in observation.items() if key not in _UNSUPPORTED_FIELDS}
    if "value_attachment" in observation:
        changed["value_string"] = "see the document"
    if "value_sampled_data" in observation:
        changed["value_string"] = observation["value_sampled_data"]["data"]
    if "value_period" in observation:
        period = observation["value_period"]
        changed["value_string"] = f"{period['start']} to {period['end']}"
    if "value_ratio" in observation:
        changed["value_ratio"] = {end: {"value": one["value"]} for end, one in observation["value_ratio"].items()}
    if "reference_ranges" in observation:
        changed["reference_ranges"] = [_add_bound_text(one) for one in observation["reference_ranges"]]
    return changed


def _add_bound_text(bounds: Json) -> Json:
    """An upper bound alone is written as `<5`, and read back so."""
    return {**bounds, "text": f"<{bounds['high']['value']}"} if "high" in bounds and "low" not in bounds else bounds


def _collected_at(order: Json, line: Json) -> datetime:
    """When the line's first specimen was collected; if unknown, when the order was made."""
    own = set(line.get("specimens", ()))
    times = (one.get("collected_at") for one in order.get("specimens", ()) if one["id"] in own)
    return min((datetime.fromisoformat(time) for time in times if time), default=datetime.fromisoformat(order["ordered_at"]))
