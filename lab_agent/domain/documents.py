"""The documents of a report, those that are values of its observations included. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab_agent.domain.results import Document, LabReport, ReportedObservation

DocumentChange = Callable[[Document], Document]


def documents_of(report: LabReport) -> tuple[Document, ...]:
    """Give the report's own documents, then those of its observations."""
    return tuple(document for _, document in documents_with_paths(report))


def documents_with_paths(report: LabReport) -> tuple[tuple[str, Document], ...]:
    """Give the documents of a report in the order of `documents_of`, each with its place, such as `documents[0]`."""
    own = [(f"documents[{index}]", document) for index, document in enumerate(report.documents)]
    attached = [
        (f"observations[{index}].value_attachment", observation.value_attachment)
        for index, observation in enumerate(report.observations)
        if observation.value_attachment is not None
    ]
    return (*own, *attached)


def map_documents(report: LabReport, change: DocumentChange) -> LabReport:
    """Give the report with each of its documents changed, in the order of `documents_of`."""
    return replace(
        report,
        documents=tuple(map(change, report.documents)),
        observations=tuple(_map_attachment(observation, change) for observation in report.observations),
    )


def _map_attachment(observation: ReportedObservation, change: DocumentChange) -> ReportedObservation:
    attachment = observation.value_attachment
    return observation if attachment is None else replace(observation, value_attachment=change(attachment))
