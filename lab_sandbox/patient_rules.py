"""What a Patient must carry when it is created or replaced ("Resources", Patient)."""

import re
from typing import Any

from lab_sandbox.outcome import Problems
from lab_sandbox.shapes import is_date, is_text
from lab_sandbox.wire import Json

GENDERS = ("male", "female", "other", "unknown")


def check_patient(patient: Json, problems: Problems) -> None:
    """Required on creation: name.family, name.given[0], name.given[1], gender, birthDate; anonymous names in their form."""
    _check_name(patient.get("name"), problems)
    if patient.get("gender") not in GENDERS:
        problems.add("Patient.gender", "patient-required", f"required, one of {', '.join(GENDERS)}", "required")
    if not is_date(patient.get("birthDate")):
        problems.add("Patient.birthDate", "patient-required", "required, a date YYYY-MM-DD", "required")
    _check_telecom(patient.get("telecom"), problems)


def _check_name(names: Any, problems: Problems) -> None:
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], dict) else {}
    family, given = name.get("family"), name.get("given")
    first, second = (*given, None, None)[:2] if isinstance(given, list) else (None, None)
    for element, value in (("family", family), ("given[0]", first), ("given[1]", second)):
        if not is_text(value):
            problems.add(f"Patient.name[0].{element}", "patient-name", "required on creation", "required")
    if first == "-" and second == "-" and not re.fullmatch(r"[0-9]{10}", str(family)):
        problems.add("Patient.name[0].family", "anonymous", "in an anonymous order it is exactly 10 digits")
    if re.fullmatch(r"[0-9]+", str(family)) and not (first == "-" and second == "-" and len(str(family)) == 10):
        problems.add("Patient.name[0]", "anonymous", "an anonymous name is 10 digits, with given[0] and given[1] each `-`")


def _check_telecom(telecom: Any, problems: Problems) -> None:
    if telecom is None:
        return
    if not isinstance(telecom, list):
        problems.add("Patient.telecom", "patient-telecom", "an array is expected")
        return
    for position, entry in enumerate(telecom):
        if not isinstance(entry, dict) or entry.get("system") not in {"phone", "email"} or not is_text(entry.get("value")):
            problems.add(f"Patient.telecom[{position}]", "patient-telecom", "system phone or email, and a value")
