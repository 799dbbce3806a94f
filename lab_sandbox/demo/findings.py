"""What the partner finds of an order, held against what was ordered and what the laboratory says it reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.record import Reported
from lab_sandbox.demo.scenes import Scene
from lab_sandbox.demo.screen import counted
from lab_sandbox.partner.checks import differences, value_forms
from lab_sandbox.partner.client import Document
from lab_sandbox.partner.placed import PlacedOrder
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.reading import OrderStatus, Report


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that the partner read about one order; `documents` in the order of `reports`."""

    status: OrderStatus
    reports: Sequence[Report]
    documents: Sequence[Sequence[Document]]


def judge(scene: Scene, order: PlacedOrder, found: Found, reported: Sequence[Reported], ledger: Ledger) -> None:
    """All checks that hold for every order."""
    _judge_tasks(scene, order, found.status, ledger)
    served = {line.procedure_request for line in order.lines if line.item not in scene.bad | scene.refused}
    covered = {request for report in found.reports for request in report.lines if report.observations}
    detail = f"{counted(len(found.reports), 'report')} for {counted(len(served), 'line')}"
    ledger.note(f"{scene.name}: each line that was served has a report, the others have none", covered == served, detail)
    statuses = sorted({report.status for report in found.reports})
    ledger.note(f"{scene.name}: every report is final", statuses == ["final"], ", ".join(statuses))
    wide = [report for report in found.reports if report.lines >= served and not report.observations and report.documents]
    ledger.note(f"{scene.name}: one document is about the whole order", len(wide) == 1)
    _judge_values(scene, order, found.reports, reported, ledger)
    _judge_documents(scene, found, reported, ledger)


def by_code(report: Report, code: str) -> Json | None:
    """The observation of a report with this code."""
    return next((one for one in report.observations if code in _codes(one)), None)


def _judge_tasks(scene: Scene, order: PlacedOrder, status: OrderStatus, ledger: Ledger) -> None:
    wanted = {
        line.procedure_request: "cancelled" if line.item in scene.bad | scene.refused else "completed" for line in order.lines
    }
    right = status.lines == wanted and status.order == "completed"
    ledger.note(f"{scene.name}: every Task has come to its right end", right, str(status))
    for line in order.lines:
        said = " / ".join(status.reasons.get(line.procedure_request, ()))
        if line.item in scene.bad:
            ledger.note(f"{scene.name}: the clinic reads which code is not known", line.item in said, said)
        elif line.item in scene.refused:
            asked = "haemolysed" in said and "collect again" in said
            ledger.note(f"{scene.name}: the clinic reads why, and that it should collect again", asked, said)


def _judge_values(
    scene: Scene, order: PlacedOrder, reports: Sequence[Report], reported: Sequence[Reported], ledger: Ledger
) -> None:
    """Every observation that the laboratory reported is there, digit for digit, in the one value form that it came in."""
    requests = {line.number: line.procedure_request for line in order.lines}
    wrong: list[str] = []
    expected = [one for one in reported if one.observations]
    for one in expected:
        about = {requests[number] for number in one.lines}
        report = next((each for each in reports if each.lines == about and each.observations), None)
        wrong += [f"no report for {', '.join(one.lines)}"] if report is None else _wrong_values(one, report)
    values = sum(len(one.observations) for one in expected)
    detail = "; ".join(wrong) or counted(values, "value")
    ledger.note(f"{scene.name}: values are those of the laboratory, digit for digit", bool(values) and not wrong, detail)


def _wrong_values(one: Reported, report: Report) -> list[str]:
    wrong = [] if len(one.observations) == len(report.observations) else [f"{len(report.observations)} observations"]
    for observation in one.observations:
        code = observation["code"]["code"]
        seen = by_code(report, code)
        if seen is None:
            wrong.append(f"{code} is missing")
        else:
            wrong += [f"{code}: {each}" for each in differences(observation, seen)]
            wrong += [f"{code}: {len(value_forms(seen))} values"] if len(value_forms(seen)) != 1 else []
    return wrong


def _judge_documents(scene: Scene, found: Found, reported: Sequence[Reported], ledger: Ledger) -> None:
    expected = sorted(content for one in reported for content in one.documents)
    seen = [document for documents in found.documents for document in documents]
    same = sorted(document.content for document in seen) == expected
    typed = all(one.content_type.startswith("application/pdf") and one.content.startswith(b"%PDF-") for one in seen)
    detail = counted(len(seen), "document")
    ledger.note(f"{scene.name}: the PDFs are the laboratory's, byte for byte", bool(seen) and same and typed, detail)


def _codes(observation: Json) -> set[str]:
    return {coding.get("code", "") for coding in observation.get("code", {}).get("coding", ())}
