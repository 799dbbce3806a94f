"""A result that grows: a culture is reported while it grows, again when it is read, and once more when a mistake is found.

Each stage is a new version of the same report. What did not change between two versions is the same in both.
"""

from __future__ import annotations

from decimal import Decimal

from lab_sandbox.demo.lis.panels import LOINC
from lab_sandbox.demo.lis.values import SNOMED, amount
from lab_sandbox.partner.plain_json import Json

STAGES = ("preliminary", "final", "corrected")

_ORGANISM = {"system": LOINC, "code": "630-4", "display": "Bacteria identified in Urine by Culture"}
_COUNT = {"system": LOINC, "code": "19090-0", "display": "Colony count [#/volume] in Urine"}


def culture(stage: str) -> tuple[str, list[Json]]:
    """Report status and observations of a stage. A correction is final again, with what it changes `amended`."""
    if stage == "preliminary":
        return "preliminary", [_organism("preliminary", {"value_string": "Growth of Gram-negative rods"})]
    if stage == "final":
        return "final", [_organism("final", _named("112283007", "Escherichia coli")), _count()]
    return "final", [_organism("amended", _named("56415008", "Klebsiella pneumoniae")), _count()]


def _organism(status: str, value: Json) -> Json:
    return {"id": "organism", "code": _ORGANISM, "status": status, **value}


def _count() -> Json:
    return {"id": "count", "code": _COUNT, "status": "final", "value_quantity": amount(Decimal(100000), "{CFU}/mL")}


def _named(code: str, words: str) -> Json:
    return {"value_codeable_concept": {"coding": [{"system": SNOMED, "code": code, "display": words}], "text": words}}
