"""Patients of the clinic: named, or anonymous in the interface's form, each with the rights that the laboratory needs."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from lab_sandbox.partner.account import Account
from lab_sandbox.partner.plain_json import Json

FAMILIES = ("Abramova", "Berg", "Castellanos", "D'Arcy", "Ekström", "Иванова", "Nguyễn", "O'Neill", "Şahin", "Zieliński")
"""Made-up family names, in several scripts."""
_GIVEN = ("Alex", "Bo", "Chloé", "Dana", "Ємельян", "Ines", "Max", "Noa", "Robin", "Zoë")
_MIDDLE = ("A.", "Maria", "Jan", "Сергеевич", "Lee", "Van")
_OLDEST = 95 * 365


def named_patient(account: Account, luck: Random, today: date) -> Json:
    """A Patient with name, gender, birth date and telecom (interface: Patient, required on creation)."""
    name = {"family": luck.choice(FAMILIES), "given": [luck.choice(_GIVEN), luck.choice(_MIDDLE)]}
    number = f"+1555{luck.randrange(10**7):07d}"
    telecom: list[Json] = [{"system": "phone", "value": number, "use": "mobile"}]
    if luck.random() < 0.5:
        telecom.append({"system": "email", "value": f"patient{luck.randrange(10**6)}@mail.example", "use": "home"})
    return _patient(account, luck, today, [name], telecom)


def anonymous_patient(account: Account, luck: Random, today: date) -> Json:
    """A Patient in the anonymous form: a family name of exactly 10 digits, both given names the single character `-`."""
    return _patient(account, luck, today, [{"family": f"{luck.randrange(10**10):010d}", "given": ["-", "-"]}], [])


def _patient(account: Account, luck: Random, today: date, name: list[Json], telecom: list[Json]) -> Json:
    born = today - timedelta(days=luck.randrange(1, _OLDEST))
    patient: Json = {
        "resourceType": "Patient",
        "meta": account.rights("read"),
        "name": name,
        "gender": luck.choice(("female", "male")),
        "birthDate": born.isoformat(),
    }
    return {**patient, "telecom": telecom} if telecom else patient
