"""Modules that do no I/O, and of which each small change is found by unit tests (proof `mutation`)."""

from __future__ import annotations

from tests.harness.paths import ROOT

_RECORDS = (
    "lab_agent.catalogue.records",
    "lab_agent.fhir.human_name",
    "lab_agent.fhir.order_numbers",
    "lab_agent.fhir.patient_identity",
    "lab_agent.fhir.received_order",
    "lab_agent.lis.document_formats",
    "lab_agent.lis.lab_messages",
    "lab_agent.lis.lab_order",
    "lab_agent.lis.report_documents",
    "lab_agent.lis.susceptibility",
    "lab_agent.lis.value_text",
    "lab_agent.orders.patient_search",
    "lab_agent.orders.records",
    "lab_agent.queue.failure_causes",
    "lab_agent.queue.job_records",
    "lab_agent.queue.jobs",
    "lab_agent.queue.pauses",
    "lab_agent.queue.retry",
    "lab_agent.results.order_choice",
    "lab_agent.results.patient_comparison",
    "lab_agent.results.records",
    "lab_agent.results.refused_records",
    "lab_agent.results.report_coverage",
    "lab_agent.results.report_versions",
    "lab_agent.shared.code_systems",
    "lab_agent.shared.ids",
    "lab_agent.shared.label_pools",
    "lab_agent.shared.state_machines",
    "lab_agent.shared.text",
    "lab_agent.shared.values",
    "lab_agent.store.activity_records",
    "lab_agent.store.audit_records",
    "lab_agent.store.credential_records",
    "lab_agent.store.event_records",
    "lab_agent.store.notification_records",
    "lab_agent.store.program_records",
    "lab_agent.store.restoration",
    "lab_agent.store.store_health",
)
_CATALOGUE = tuple(
    f"lab_agent.catalogue.{name}"
    for name in (
        "basket",
        "basket_errors",
        "bin_packing",
        "labels",
        "model",
        "nomenclature",
        "preanalytics",
        "questionnaire",
        "settings_check",
        "specimen_choice",
        "supporting_info",
        "tubes",
        "turnaround",
    )
)


def modules_in(package: str) -> tuple[str, ...]:
    """The modules of a package, by name, without those of packages within it."""
    files = sorted((ROOT.joinpath(*package.split("."))).glob("*.py"))
    return tuple(".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.name != "__init__.py")


GROUPS = {"records": _RECORDS, "rules": modules_in("lab_agent.rules"), "catalogue": _CATALOGUE}
"""Records of all slices with what they decide, the rules, and the arithmetic of a basket."""
