"""What all records and codes have in common, whichever slice they are of."""

from __future__ import annotations

from lab_agent.results.order_choice import Misfit
from lab_agent.shared.values import CodeableConcept
from tests.harness.field_defaults import misnamed_codes, other_defaults


def test_missing_fields_are_nothing_and_codes_named_as_their_values() -> None:
    """Codes are stored and shown: a value changes only with a migration."""
    nothing, received = CodeableConcept(), "ReceivedTask.code ReceivedRequest.code ReceivedContainer.type"
    received += " ReceivedSpecimen.type ReceivedSpecimen.method ReceivedSpecimen.body_site"
    assert other_defaults("records") == {
        **dict.fromkeys(received.split(), nothing),
        "HumanName.where": "Patient.name[0]",
        "Document.content_type": "application/pdf",
        "ReportedObservation.status": "final",
        "LabOrder.schema_version": 1,
        "LabelPool.check_digit": "none",
        "ReceivedPatient.where": "Patient",
        "OrderRecord.state": "seen",
        "LineRecord.state": "requested",
        "RefusedMessage.state": "waiting",
        "RefusedMessage.count": 1,
        "RefusedMessage.is_kept": True,
        "ReportRecord.state": "received",
        "Backoff.first": 2.0,
        "Backoff.longest": 300.0,
        "WorkOrder.state": "accepted",
    }
    assert {type(each) for each in misnamed_codes("records")} == {Misfit}, "these are words for people"
