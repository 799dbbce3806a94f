"""The ids of all rules that the service checks: the same in diagnostics, settings and documentation."""

from typing import Literal

FixedRule = Literal[
    "binary-required", "bundle-entry", "bundle-full-url", "bundle-type", "bundle-types", "local-reference", "meta-add",
    "rights-shape",
]  # fmt: skip
"""Always checked: without them a request cannot be processed."""

SwitchableRule = Literal[
    "anonymous", "answers-link-id", "answers-source", "answers-status", "answers-subject", "answers-text", "answers-value",
    "array", "container-barcode", "container-quantity", "container-type", "contract-known", "contract-link", "contract-party",
    "follow-up-number", "line-code", "line-edited", "line-identifier", "line-moment", "line-note", "line-specimen",
    "line-status", "observation-issued", "observation-loinc", "observation-method", "observation-range",
    "observation-reference", "observation-status", "observation-value", "one-contract", "one-contract-link-type", "one-patient",
    "one-requisition", "one-specimen-type", "one-task-per-line", "order-counts", "patient-name", "patient-required",
    "patient-telecom", "reference-known", "reference-right", "reference-type", "report-code", "report-document",
    "report-patient", "report-references", "report-required", "report-status", "requisition", "rights-guid", "sample-time",
    "specimen-collected", "specimen-collection", "specimen-container", "specimen-extension", "specimen-method", "specimen-type",
    "stu3-instant", "stu3-required", "stu3-type-name", "subject", "task-based-on", "task-links", "task-notification",
    "task-output", "task-part-of", "task-reason", "task-requested", "task-rights", "task-status", "task-transition",
    "task-type-system", "two-barcodes", "upload-rights",
]  # fmt: skip
"""Can be switched off with `rules.off`."""

Rule = FixedRule | SwitchableRule
"""As given in the diagnostics of a rejection."""
