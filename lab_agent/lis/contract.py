"""Everything an adapter's author imports from the agent, in one module; other modules may change without notice.

The guide for authors is docs/adapters.md; the suite that every adapter must pass is `lab_agent.lis.testing`.
"""

from __future__ import annotations

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_messages import (
    Accession,
    AccessionUpdate,
    Document,
    LabMessage,
    LabRejection,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReferenceRange,
    ReportedObservation,
    ReportedPatient,
    ReportStatus,
)
from lab_agent.domain.lab_order import (
    AnswerStep,
    LabOrder,
    NotificationOption,
    OrderAnswer,
    OrderContainer,
    OrderLine,
    OrderPatient,
    OrderSpecimen,
    PatientName,
    Telecom,
)
from lab_agent.domain.values import CodeableConcept, Coding, Identifier, PartialDate, Period, Quantity, Range, Ratio, SampledData
from lab_agent.errors import DataInvalidError, LisOutcomeUnknown, LisRejected, LisUnavailable, Problem
from lab_agent.ports.lis import (
    CONTRACT_VERSION,
    Inbox,
    LisAdapter,
    MapSuggestion,
    ParsedMessage,
    ParsedPart,
    RawMessageParser,
    SubmitResult,
    TraceLine,
)
from lab_agent.serialization import dump_message, dump_order, load_message, load_order, validate_message

__all__ = [
    "CONTRACT_VERSION",
    "Accession",
    "AccessionUpdate",
    "AnswerStep",
    "CodeableConcept",
    "Coding",
    "DataInvalidError",
    "Document",
    "Identifier",
    "Inbox",
    "LabMessage",
    "LabOrder",
    "LabRejection",
    "LabReport",
    "LineKey",
    "LisAdapter",
    "LisOutcomeUnknown",
    "LisRejected",
    "LisUnavailable",
    "MapSuggestion",
    "NotPerformed",
    "NotificationOption",
    "ObservationStatus",
    "OrderAnswer",
    "OrderContainer",
    "OrderKey",
    "OrderLine",
    "OrderPatient",
    "OrderSpecimen",
    "ParsedMessage",
    "ParsedPart",
    "PartialDate",
    "PatientName",
    "Period",
    "Problem",
    "Quantity",
    "Range",
    "Ratio",
    "RawMessageParser",
    "ReferenceRange",
    "ReportStatus",
    "ReportedObservation",
    "ReportedPatient",
    "SampledData",
    "SubmitResult",
    "Telecom",
    "TraceLine",
    "dump_message",
    "dump_order",
    "load_message",
    "load_order",
    "validate_message",
]
