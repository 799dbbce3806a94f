"""The documents of a report, those that are values of its observations included. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab_agent.domain.results import Document, LabReport, ReportedObservation

Change = Callable[[Document], Document]


def documents_of(report: LabReport) -> tuple[Document, ...]:
    """Give the report's own documents, then those of its observations."""
    attached = (observation.value_attachment for observation in report.observations)
    return tuple(document for document in (*report.documents, *attached) if document is not None)


def with_documents(report: LabReport, change: Change) -> LabReport:
    """Give the report with each of its documents changed, in the order of `documents_of`."""
    return replace(
        report,
        documents=tuple(map(change, report.documents)),
        observations=tuple(_with_attachment(observation, change) for observation in report.observations),
    )


def _with_attachment(observation: ReportedObservation, change: Change) -> ReportedObservation:
    attachment = observation.value_attachment
    return observation if attachment is None else replace(observation, value_attachment=change(attachment))
