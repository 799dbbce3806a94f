"""Whether a resource is valid by the STU3 models of fhir.resources, and by the cardinality tables as the sandbox reads them."""

from __future__ import annotations

from typing import Any

import msgspec
from fhir.resources.STU3.diagnosticreport import DiagnosticReport
from fhir.resources.STU3.observation import Observation

from lab_agent import exact_json
from lab_sandbox.errors import Problems
from lab_sandbox.partner.errors import decode
from lab_sandbox.resource_rules import check_observation, check_report

DEVIATIONS = {
    "referenceRange.meaning": "STU3 calls it type; the interface's name is used",
}
"""Where the interface deviates from FHIR STU3: field → how. Renamed for the STU3 check, and nothing else is."""


def find_violations(resource: Any, nomenclature: str) -> list[str]:
    """Violations of the interface's tables. Raises what the STU3 models raise."""
    problems, wire = Problems(), decode(exact_json.dumps(resource))
    if resource["resourceType"] == "Observation":
        Observation.model_validate(as_json(_rename_meaning(resource)))
        check_observation(wire, problems)
    else:
        DiagnosticReport.model_validate(as_json(resource))
        check_report(wire, nomenclature, problems)
    return [str(problem) for problem in problems.found]


def as_json(resource: Any) -> Any:
    """The resource as any JSON library reads it."""
    return msgspec.json.decode(exact_json.dumps(resource))


def _rename_meaning(body: Any) -> Any:
    if "referenceRange" not in body:
        return body
    renamed = [{("type" if name == "meaning" else name): part for name, part in each.items()} for each in body["referenceRange"]]
    return {**body, "referenceRange": renamed}
