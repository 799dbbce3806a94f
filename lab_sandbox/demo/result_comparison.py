"""Compares what the partner reads about an order with what was ordered and what the laboratory reported."""

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
    """The checks that apply to every order."""
    _check_tasks(scenario, order, found.status, check_list)
    performed = {
        line.procedure_request for line in order.lines if line.item not in scenario.unknown_items | scenario.rejected_items
    }
    covered = {request for report in found.reports for request in report.lines if report.observations}
    detail = f"{pluralize(len(found.reports), 'report')} for {pluralize(len(performed), 'line')}"
    check_list.record(f"{scenario.name}: each performed line has a report, the others have none", covered == performed, detail)
    statuses = sorted({report.status for report in found.reports})
    check_list.record(f"{scenario.name}: every report is final", statuses == ["final"], ", ".join(statuses))
    order_wide = [
        report for report in found.reports if report.lines >= performed and not report.observations and report.documents
    ]
    check_list.record(f"{scenario.name}: one document covers the whole order", len(order_wide) == 1)
    _check_values(scenario, order, found.reports, reported, check_list)
    _check_documents(scenario, found, reported, check_list)


def find_observation(report: ReceivedReport, code: str) -> Json | None:
    """The observation of a report with this code."""
    return next((one for one in report.observations if code in _observation_codes(one)), None)


def _check_tasks(scenario: Scenario, order: PlacedOrder, status: OrderStatus, check_list: CheckList) -> None:
    expected = {
        line.procedure_request: "cancelled" if line.item in scenario.unknown_items | scenario.rejected_items else "completed"
        for line in order.lines
    }
    correct = status.lines == expected and status.order == "completed"
    check_list.record(f"{scenario.name}: every Task has the right final status", correct, str(status))
    for line in order.lines:
        reason = " / ".join(status.reasons.get(line.procedure_request, ()))
        if line.item in scenario.unknown_items:
            check_list.record(f"{scenario.name}: the clinic reads which code is unknown", line.item in reason, reason)
        elif line.item in scenario.rejected_items:
            complete = "haemolysed" in reason and "collect again" in reason
            check_list.record(f"{scenario.name}: the clinic reads the reason and is asked to collect again", complete, reason)


def _check_values(
    scenario: Scenario,
    order: PlacedOrder,
    reports: Sequence[ReceivedReport],
    reported: Sequence[RecordedReport],
    check_list: CheckList,
) -> None:
    """Every reported observation has arrived, with every digit, in the same value form and no other."""
    requests = {line.number: line.procedure_request for line in order.lines}
    differences: list[str] = []
    expected = [one for one in reported if one.observations]
    for one in expected:
        covered = {requests[number] for number in one.lines}
        report = next((each for each in reports if each.lines == covered and each.observations), None)
        differences += [f"no report for {', '.join(one.lines)}"] if report is None else _value_differences(one, report)
    values = sum(len(one.observations) for one in expected)
    detail = "; ".join(differences) or pluralize(values, "value")
    check_list.record(
        f"{scenario.name}: values equal those of the laboratory, digit by digit", bool(values) and not differences, detail
    )


def _value_differences(recorded: RecordedReport, report: ReceivedReport) -> list[str]:
    differences = [] if len(recorded.observations) == len(report.observations) else [f"{len(report.observations)} observations"]
    for observation in recorded.observations:
        code = observation["code"]["code"]
        found = find_observation(report, code)
        if found is None:
            differences.append(f"{code} is missing")
        else:
            differences += [f"{code}: {each}" for each in find_differences(observation, found)]
            differences += [f"{code}: {len(value_fields(found))} values"] if len(value_fields(found)) != 1 else []
    return differences


def _check_documents(scenario: Scenario, found: OrderFindings, reported: Sequence[RecordedReport], check_list: CheckList) -> None:
    expected = sorted(content for one in reported for content in one.documents)
    documents = [document for each in found.documents for document in each]
    same = sorted(document.content for document in documents) == expected
    typed = all(one.content_type.startswith("application/pdf") and one.content.startswith(b"%PDF-") for one in documents)
    detail = pluralize(len(documents), "document")
    check_list.record(
        f"{scenario.name}: the PDFs equal those of the laboratory, byte by byte", bool(documents) and same and typed, detail
    )


def _observation_codes(observation: Json) -> set[str]:
    return {coding.get("code", "") for coding in observation.get("code", {}).get("coding", ())}
