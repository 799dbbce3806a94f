"""What the partner finds of an order, held against what was ordered and what the laboratory says it reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab_sandbox.demo.checks import CheckList, RecordedReport
from lab_sandbox.demo.console import pluralize
from lab_sandbox.demo.scenarios import Scenario
from lab_sandbox.partner.client import DownloadedDocument
from lab_sandbox.partner.clinic import PlacedOrder
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.result_reader import OrderStatus, ReceivedReport, find_differences, value_fields


@dataclass(frozen=True, slots=True)
class OrderFindings:
    """Everything that the partner read about one order; `documents` in the order of `reports`."""

    status: OrderStatus
    reports: Sequence[ReceivedReport]
    documents: Sequence[Sequence[DownloadedDocument]]


def compare_results(
    scenario: Scenario, order: PlacedOrder, found: OrderFindings, reported: Sequence[RecordedReport], check_list: CheckList
) -> None:
    """All checks that hold for every order."""
    _check_tasks(scenario, order, found.status, check_list)
    served = {line.procedure_request for line in order.lines if line.item not in scenario.unknown_items | scenario.rejected_items}
    covered = {request for report in found.reports for request in report.lines if report.observations}
    detail = f"{pluralize(len(found.reports), 'report')} for {pluralize(len(served), 'line')}"
    check_list.record(f"{scenario.name}: each line that was served has a report, the others have none", covered == served, detail)
    statuses = sorted({report.status for report in found.reports})
    check_list.record(f"{scenario.name}: every report is final", statuses == ["final"], ", ".join(statuses))
    wide = [report for report in found.reports if report.lines >= served and not report.observations and report.documents]
    check_list.record(f"{scenario.name}: one document is about the whole order", len(wide) == 1)
    _check_values(scenario, order, found.reports, reported, check_list)
    _check_documents(scenario, found, reported, check_list)


def find_observation(report: ReceivedReport, code: str) -> Json | None:
    """The observation of a report with this code."""
    return next((one for one in report.observations if code in _observation_codes(one)), None)


def _check_tasks(scenario: Scenario, order: PlacedOrder, status: OrderStatus, check_list: CheckList) -> None:
    wanted = {
        line.procedure_request: "cancelled" if line.item in scenario.unknown_items | scenario.rejected_items else "completed"
        for line in order.lines
    }
    right = status.lines == wanted and status.order == "completed"
    check_list.record(f"{scenario.name}: every Task has come to its right end", right, str(status))
    for line in order.lines:
        said = " / ".join(status.reasons.get(line.procedure_request, ()))
        if line.item in scenario.unknown_items:
            check_list.record(f"{scenario.name}: the clinic reads which code is not known", line.item in said, said)
        elif line.item in scenario.rejected_items:
            asked = "haemolysed" in said and "collect again" in said
            check_list.record(f"{scenario.name}: the clinic reads why, and that it should collect again", asked, said)


def _check_values(
    scenario: Scenario,
    order: PlacedOrder,
    reports: Sequence[ReceivedReport],
    reported: Sequence[RecordedReport],
    check_list: CheckList,
) -> None:
    """Every observation that the laboratory reported is there, digit for digit, in the one value form that it came in."""
    requests = {line.number: line.procedure_request for line in order.lines}
    wrong: list[str] = []
    expected = [one for one in reported if one.observations]
    for one in expected:
        about = {requests[number] for number in one.lines}
        report = next((each for each in reports if each.lines == about and each.observations), None)
        wrong += [f"no report for {', '.join(one.lines)}"] if report is None else _value_differences(one, report)
    values = sum(len(one.observations) for one in expected)
    detail = "; ".join(wrong) or pluralize(values, "value")
    check_list.record(f"{scenario.name}: values are those of the laboratory, digit for digit", bool(values) and not wrong, detail)


def _value_differences(recorded: RecordedReport, report: ReceivedReport) -> list[str]:
    wrong = [] if len(recorded.observations) == len(report.observations) else [f"{len(report.observations)} observations"]
    for observation in recorded.observations:
        code = observation["code"]["code"]
        seen = find_observation(report, code)
        if seen is None:
            wrong.append(f"{code} is missing")
        else:
            wrong += [f"{code}: {each}" for each in find_differences(observation, seen)]
            wrong += [f"{code}: {len(value_fields(seen))} values"] if len(value_fields(seen)) != 1 else []
    return wrong


def _check_documents(scenario: Scenario, found: OrderFindings, reported: Sequence[RecordedReport], check_list: CheckList) -> None:
    expected = sorted(content for one in reported for content in one.documents)
    seen = [document for documents in found.documents for document in documents]
    same = sorted(document.content for document in seen) == expected
    typed = all(one.content_type.startswith("application/pdf") and one.content.startswith(b"%PDF-") for one in seen)
    detail = pluralize(len(seen), "document")
    check_list.record(f"{scenario.name}: the PDFs are the laboratory's, byte for byte", bool(seen) and same and typed, detail)


def _observation_codes(observation: Json) -> set[str]:
    return {coding.get("code", "") for coding in observation.get("code", {}).get("coding", ())}
