"""Everything that the stand-in says about one order, in the order in which it says it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from lab_sandbox.demo.lis.culture import STAGES, culture
from lab_sandbox.demo.lis.panels import observations
from lab_sandbox.demo.lis.pdf import printed
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.seeded import chance

HAEMOLYSED = "The sample is haemolysed and cannot be measured"


@dataclass(frozen=True, slots=True)
class Habits:
    """Which tests are reported in stages (`staged`), and of which the stand-in refuses the sample (`refused`): item codes.

    `plain`: values are said in the forms that HL7 v2 has.
    """

    staged: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One file for the results folder, with the documents that lie beside it; `stage` is what it waits for, if anything."""

    name: str
    body: Json
    documents: dict[str, bytes] = field(default_factory=dict)
    stage: str | None = None


def messages(order: Json, habits: Habits, now: datetime) -> Iterator[Message]:
    """The messages about an order; the same order gives the same ones, but for the time at which each was issued.

    The order-wide document comes before the results of the lines, so that it meets an order that is still open.
    """
    performed = [line for line in order["lines"] if line["item"] not in habits.refused]
    if performed:
        yield _order_document(order, performed, now)
    for line in order["lines"]:
        if line["item"] in habits.refused:
            yield _refusal(order, line)
        elif line["item"] in habits.staged:
            yield from _in_stages(order, line, now)
        else:
            yield _final(order, line, now)


def _final(order: Json, line: Json, now: datetime) -> Message:
    """A final report of one line, its printed form within the message."""
    collected = collected_at(order, line)
    found = observations(line["item"], chance(line["key"]), collected)
    pdf = printed(line.get("text") or line["item"], order["requisition"]["value"], found)
    document = {"content": base64.b64encode(pdf).decode("ascii"), "title": line.get("text") or line["item"]}
    body = _report(
        order, line["key"], "final", now, effective=collected, lines=[line["key"]], observations=found, documents=[document]
    )
    return Message(f"{order['key']}-{line['key']}.json", body)


def _in_stages(order: Json, line: Json, now: datetime) -> Iterator[Message]:
    for version, stage in enumerate(STAGES, 1):
        status, found = culture(stage)
        body = _report(
            order, line["key"], status, now, version=version, effective=collected_at(order, line), lines=[line["key"]],
            observations=found,
        )  # fmt: skip
        yield Message(f"{order['key']}-{line['key']}-{version}.json", body, stage=stage if version > 1 else None)


def _order_document(order: Json, lines: list[Json], now: datetime) -> Message:
    """One document about the whole order, as a file beside the message; it completes no line."""
    name = f"{order['key']}-all.pdf"
    found = [one for line in lines for one in observations(line["item"], chance(line["key"]), collected_at(order, line))]
    pdf = printed("Summary of the order", order["requisition"]["value"], found)
    document = {"file": name, "title": "Summary of the order"}
    effective = datetime.fromisoformat(order["ordered_at"])
    body = _report(order, f"{order['key']}-all", "final", now, effective=effective, completes=[], documents=[document])
    return Message(f"{order['key']}-all.json", body, {name: pdf})


def _refusal(order: Json, line: Json) -> Message:
    reason = {"line": line["key"], "reason": HAEMOLYSED}
    body = {"kind": "refusal", "order": order["key"], "not_performed": [reason], "collect_again": True}
    return Message(f"{order['key']}-{line['key']}-refused.json", body)


def _report(order: Json, report: str, status: str, now: datetime, *, effective: datetime, **more: object) -> Json:
    times = {"effective": effective.isoformat(timespec="seconds"), "issued": now.isoformat(timespec="milliseconds")}
    return {"kind": "report", "report_id": report, "order": order["key"], "status": status, **times, **more}


def collected_at(order: Json, line: Json) -> datetime:
    """When the line's first specimen was collected; where nobody says, when the order was made."""
    own = set(line.get("specimens", ()))
    times = (one.get("collected_at") for one in order.get("specimens", ()) if one["id"] in own)
    return min((datetime.fromisoformat(time) for time in times if time), default=datetime.fromisoformat(order["ordered_at"]))
