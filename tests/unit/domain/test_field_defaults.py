"""What a record has where nobody gives it: None where it may be missing, else nothing of its type, but for a few."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.domain import (
    activity,
    api_refusals,
    audit,
    catalogue_records,
    code_systems,
    human_name,
    job_records,
    jobs,
    lab_messages,
    lab_order,
    label_pools,
    notifications,
    order_holds,
    patient_identity,
    patient_search,
    programs,
    received_order,
    records,
    refused_messages,
    report_coverage,
    report_documents,
    report_records,
    report_versions,
    reported_patients,
    restoration,
    retry,
    state_machines,
    store_health,
    values,
    work_orders,
    workers,
)
from tests.harness.field_defaults import other_defaults, records_of

RECORDS = records_of(
    activity,
    api_refusals,
    audit,
    catalogue_records,
    code_systems,
    human_name,
    job_records,
    jobs,
    lab_messages,
    lab_order,
    label_pools,
    notifications,
    order_holds,
    patient_identity,
    patient_search,
    programs,
    received_order,
    records,
    refused_messages,
    report_coverage,
    report_documents,
    report_records,
    report_versions,
    reported_patients,
    restoration,
    retry,
    store_health,
    values,
    work_orders,
    workers,
)


OTHER_DEFAULTS: dict[type[Any], dict[str, Any]] = {
    human_name.HumanName: {"where": "Patient.name[0]"},
    lab_messages.Document: {"content_type": "application/pdf"},
    lab_messages.ReportedObservation: {"status": lab_messages.ObservationStatus.FINAL},
    lab_order.LabOrder: {"schema_version": 1},
    label_pools.LabelPool: {"check_digit": "none"},
    received_order.ReceivedTask: {"code": values.CodeableConcept()},
    received_order.ReceivedRequest: {"code": values.CodeableConcept()},
    received_order.ReceivedContainer: {"type": values.CodeableConcept()},
    received_order.ReceivedSpecimen: dict.fromkeys(("type", "method", "body_site"), values.CodeableConcept()),
    received_order.ReceivedPatient: {"where": "Patient"},
    records.OrderRecord: {"state": state_machines.OrderState.SEEN},
    records.LineRecord: {"state": state_machines.LineState.REQUESTED},
    refused_messages.RefusedMessage: {"state": refused_messages.RefusedState.WAITING, "count": 1, "is_kept": True},
    report_records.ReportRecord: {"state": state_machines.ReportState.RECEIVED},
    retry.Backoff: {"first": 2.0, "longest": 300.0},
    work_orders.WorkOrder: {"state": state_machines.WorkOrderState.ACCEPTED},
}
"""The defaults that are something."""


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: each.__name__)
def test_missing_field_is_none_or_as_listed(record: type[Any]) -> None:
    assert other_defaults(record) == OTHER_DEFAULTS.get(record, {})
