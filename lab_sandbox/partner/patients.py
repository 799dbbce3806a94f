"""Patients of the clinic: named, or anonymous in the interface's form, each with the rights that the laboratory needs."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.plain_json import Json

FAMILY_NAMES = ("Abramova", "Berg", "Castellanos", "D'Arcy", "Ekström", "Иванова", "Nguyễn", "O'Neill", "Şahin", "Zieliński")
"""Made-up family names, in several scripts."""
_GIVEN_NAMES = ("Alex", "Bo", "Chloé", "Dana", "Ємельян", "Ines", "Max", "Noa", "Robin", "Zoë")
_MIDDLE_NAMES = ("A.", "Maria", "Jan", "Сергеевич", "Lee", "Van")
_MAX_AGE_DAYS = 95 * 365


def named_patient(account: PartnerAccount, rng: Random, today: date) -> Json:
    """A Patient with name, gender, birth date and telecom (interface: Patient, required on creation)."""
    name = {"family": rng.choice(FAMILY_NAMES), "given": [rng.choice(_GIVEN_NAMES), rng.choice(_MIDDLE_NAMES)]}
    number = f"+1555{rng.randrange(10**7):07d}"
    telecom: list[Json] = [{"system": "phone", "value": number, "use": "mobile"}]
    if rng.random() < 0.5:
        telecom.append({"system": "email", "value": f"patient{rng.randrange(10**6)}@mail.example", "use": "home"})
    return _patient(account, rng, today, [name], telecom)


def anonymous_patient(account: PartnerAccount, rng: Random, today: date) -> Json:
    """A Patient in the anonymous form: a family name of exactly 10 digits, both given names the single character `-`."""
    return _patient(account, rng, today, [{"family": f"{rng.randrange(10**10):010d}", "given": ["-", "-"]}], [])


def _patient(account: PartnerAccount, rng: Random, today: date, name: list[Json], telecom: list[Json]) -> Json:
    born = today - timedelta(days=rng.randrange(1, _MAX_AGE_DAYS))
    patient: Json = {
        "resourceType": "Patient",
        "meta": account.security_meta("read"),
        "name": name,
        "gender": rng.choice(("female", "male")),
        "birthDate": born.isoformat(),
    }
    return {**patient, "telecom": telecom} if telecom else patient
