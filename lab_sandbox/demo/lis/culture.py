"""A result that grows: a culture is reported while it grows, again when it is read, and once more when a mistake is found.

Each stage is a new version of the same report. What did not change between two versions is the same in both.
"""

from __future__ import annotations

from decimal import Decimal

from lab_sandbox.demo.lis.panels import LOINC
from lab_sandbox.demo.lis.values import SNOMED, amount
from lab_sandbox.partner.plain_json import Json

STAGES = ("preliminary", "final", "corrected")

_ORGANISM_CODING = {"system": LOINC, "code": "630-4", "display": "Bacteria identified in Urine by Culture"}
_COUNT_CODING = {"system": LOINC, "code": "19090-0", "display": "Colony count [#/volume] in Urine"}


def culture_report(stage: str) -> tuple[str, list[Json]]:
    """Report status and observations of a stage. A correction is final again, with what it changes `amended`."""
    if stage == "preliminary":
        return "preliminary", [_organism_observation("preliminary", {"value_string": "Growth of Gram-negative rods"})]
    if stage == "final":
        return "final", [_organism_observation("final", _organism_value("112283007", "Escherichia coli")), _count_observation()]
    return "final", [_organism_observation("amended", _organism_value("56415008", "Klebsiella pneumoniae")), _count_observation()]


def _organism_observation(status: str, value: Json) -> Json:
    return {"id": "organism", "code": _ORGANISM_CODING, "status": status, **value}


def _count_observation() -> Json:
    return {"id": "count", "code": _COUNT_CODING, "status": "final", "value_quantity": amount(Decimal(100000), "{CFU}/mL")}


def _organism_value(code: str, display: str) -> Json:
    return {"value_codeable_concept": {"coding": [{"system": SNOMED, "code": code, "display": display}], "text": display}}
