"""The resource types that the service keeps, and the names that the interface gives them."""

from typing import Final

RESOURCE_TYPES: Final = (
    "Patient",
    "ProcedureRequest",
    "Task",
    "Specimen",
    "QuestionnaireResponse",
    "DiagnosticReport",
    "Observation",
    "Binary",
    "Contract",
)
ORDER_TYPES: Final = frozenset({"ProcedureRequest", "Task", "Specimen", "QuestionnaireResponse"})
CREATED_BY_POST: Final = frozenset({"Patient", "Observation", "DiagnosticReport", "Binary"})

CREATE_ORDER: Final = "$CreateDiagnosticRequest"
META_ADD: Final = "$meta-add"
OPERATIONS: Final = {CREATE_ORDER.lower(): CREATE_ORDER, META_ADD: META_ADD}

ORDER_TASK_CODE: Final = "OrderProcessingTask"

_TYPE_BY_LOWER_CASE: Final = {name.lower(): name for name in RESOURCE_TYPES}


def canonical_type(name: str) -> str | None:
    """`task`, `TASK` -> `Task`; None for what is no resource type of the service."""
    return _TYPE_BY_LOWER_CASE.get(name.lower())
