"""The values that the LIS simulator measures: real LOINC codes, and together every value form of the interface.

Each value has the digits that a device would show.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from lab_sandbox.demo.lis.pdf import build_curve_pdf
from lab_sandbox.partner.errors import Json

UCUM = "http://unitsofmeasure.org"
SNOMED = "http://snomed.info/sct"

ValueGenerator = Callable[[Random, datetime], Json]
"""Draws the value fields of an observation; the time is when the specimen was collected."""


def amount(value: Decimal | str, unit: str, comparator: str | None = None) -> Json:
    """A quantity with a UCUM unit; the digits stay as given."""
    bare: Json = {"value": Decimal(value), "unit": unit, "system": UCUM, "code": unit}
    return bare if comparator is None else {**bare, "comparator": comparator}


def measured_quantity(low: str, high: str, unit: str) -> ValueGenerator:
    """A measured amount around the reference range `low` to `high`, with as many decimal places as they have."""
    lowest, highest = Decimal(low), Decimal(high)
    step = Decimal(1).scaleb(int(lowest.as_tuple().exponent))

    def draw(rng: Random, _collected: datetime) -> Json:
        spread = int((highest - lowest) / step)
        value = lowest + step * rng.randint(-spread // 3, spread + spread // 3)
        value = max(value, step)
        ranges: Json = {"low": amount(lowest, unit), "high": amount(highest, unit)}
        flags = ["L"] if value < lowest else ["H"] if value > highest else []
        return {"value_quantity": amount(value, unit), "reference_ranges": [ranges], **({"flags": flags} if flags else {})}

    return draw


def below_limit(limit: str, unit: str) -> ValueGenerator:
    """Below the detection limit: a quantity with a comparator."""
    return lambda _rng, _collected: {
        "value_quantity": amount(limit, unit, "<"),
        "reference_ranges": [{"high": amount(limit, unit), "text": f"below {limit} {unit}"}],
    }


def coded_value(*choices: tuple[str, str], system: str = SNOMED) -> ValueGenerator:
    """One of some coded findings."""

    def draw(rng: Random, _collected: datetime) -> Json:
        code, words = rng.choice(choices)
        return {"value_codeable_concept": {"coding": [{"system": system, "code": code, "display": words}], "text": words}}

    return draw


def text_value(*choices: str) -> ValueGenerator:
    """A finding as text."""
    return lambda rng, _collected: {"value_string": rng.choice(choices)}


def value_range(pairs: Sequence[tuple[str, str]], unit: str) -> ValueGenerator:
    """A range, as counted under the microscope."""

    def draw(rng: Random, _collected: datetime) -> Json:
        low, high = rng.choice(pairs)
        return {"value_range": {"low": amount(low, unit), "high": amount(high, unit)}}

    return draw


def value_ratio(low: str, high: str, numerator_unit: str, denominator_unit: str) -> ValueGenerator:
    """A ratio whose denominator is 1."""
    lowest, highest = Decimal(low), Decimal(high)
    step = Decimal(1).scaleb(int(lowest.as_tuple().exponent))

    def draw(rng: Random, _collected: datetime) -> Json:
        value = lowest + step * rng.randint(0, int((highest - lowest) / step))
        return {"value_ratio": {"numerator": amount(value, numerator_unit), "denominator": amount("1", denominator_unit)}}

    return draw


def sampled_curve(unit: str, minutes: int, points: int) -> ValueGenerator:
    """A series of samples at equal intervals."""

    def draw(rng: Random, _collected: datetime) -> Json:
        data = " ".join(str(Decimal(rng.randint(420, 980)).scaleb(-2)) for _ in range(points))
        period = Decimal(minutes * 60_000)
        return {"value_sampled_data": {"origin": amount("0", unit), "period": period, "dimensions": 1, "data": data}}

    return draw


def curve_document(title: str) -> ValueGenerator:
    """A curve as a document that is itself the value."""

    def draw(rng: Random, _collected: datetime) -> Json:
        content = build_curve_pdf(title, [rng.random() for _ in range(24)])
        encoded = base64.b64encode(content).decode("ascii")
        return {"value_attachment": {"content": encoded, "content_type": "application/pdf", "title": title}}

    return draw


def time_of_day(_rng: Random, collected: datetime) -> Json:
    """The time of day at which the specimen was collected."""
    return {"value_time": collected.strftime("%H:%M:%S")}


def date_time(_rng: Random, collected: datetime) -> Json:
    """When the specimen was collected."""
    return {"value_date_time": collected.isoformat(timespec="seconds")}


def preceding_day(_rng: Random, collected: datetime) -> Json:
    """The twenty-four hours up to the collection."""
    start = collected - timedelta(hours=24)
    return {"value_period": {"start": start.isoformat(timespec="seconds"), "end": collected.isoformat(timespec="seconds")}}


LOINC = "http://loinc.org"
_NEGATIVE, _POSITIVE = ("260385009", "Negative"), ("10828004", "Positive")


@dataclass(frozen=True, slots=True)
class Measurand:
    """One observable: its LOINC code and how its value is drawn."""

    code: str
    display: str
    draw: ValueGenerator

    def measure(self, rng: Random, collected: datetime) -> Json:
        """One observation, identified by its code from version to version."""
        coding = {"system": LOINC, "code": self.code, "display": self.display}
        return {"id": self.code, "code": coding, "status": "final", **self.draw(rng, collected)}


PANELS: dict[str, tuple[Measurand, ...]] = {
    "001.001": (
        Measurand("718-7", "Hemoglobin [Mass/volume] in Blood", measured_quantity("120.0", "160.0", "g/L")),
        Measurand("6690-2", "Leukocytes [#/volume] in Blood", measured_quantity("4.00", "9.00", "10*9/L")),
        Measurand("777-3", "Platelets [#/volume] in Blood", measured_quantity("150", "400", "10*9/L")),
    ),
    "002.001": (
        Measurand("14749-6", "Glucose [Moles/volume] in Serum or Plasma", measured_quantity("3.90", "6.10", "mmol/L")),
        Measurand("49049-0", "Collection time of Specimen", time_of_day),
        Measurand("33882-2", "Collection date of Specimen", date_time),
    ),
    "002.002": (
        Measurand("14682-9", "Creatinine [Moles/volume] in Serum or Plasma", measured_quantity("44.0", "97.0", "umol/L")),
    ),
    "002.003": (
        Measurand("1742-6", "Alanine aminotransferase [Enzymatic activity/volume]", measured_quantity("5.0", "41.0", "U/L")),
    ),
    "002.004": (
        Measurand("1920-8", "Aspartate aminotransferase [Enzymatic activity/volume]", measured_quantity("5.0", "40.0", "U/L")),
    ),
    "002.006": (Measurand("1988-5", "C reactive protein [Mass/volume] in Serum or Plasma", below_limit("0.50", "mg/L")),),
    "002.007": (Measurand("2276-4", "Ferritin [Mass/volume] in Serum or Plasma", measured_quantity("15.0", "150.0", "ug/L")),),
    "002.015": (Measurand("13362-9", "Collection duration of Urine", preceding_day),),
    "003.001": (
        Measurand("3016-3", "Thyrotropin [Units/volume] in Serum or Plasma", measured_quantity("0.400", "4.000", "m[IU]/L")),
    ),
    "003.002": (Measurand("14920-3", "Thyroxine (T4) free [Moles/volume]", measured_quantity("9.00", "22.00", "pmol/L")),),
    "005.001": (
        Measurand("5778-6", "Color of Urine", text_value("straw", "amber", "жёлтый — прозрачный")),
        Measurand("5811-5", "Specific gravity of Urine", measured_quantity("1.005", "1.030", "1")),
        Measurand(
            "5821-4", "Leukocytes [#/area] in Urine sediment", value_range((("0", "2"), ("3", "5"), ("10", "15")), "/[HPF]")
        ),
    ),
    "005.002": (Measurand("14959-1", "Microalbumin/Creatinine [Mass Ratio] in Urine", value_ratio("1.0", "30.0", "mg", "g")),),
    "006.001": (Measurand("14749-6", "Glucose [Moles/volume] in Serum or Plasma", sampled_curve("mmol/L", 60, 3)),),
    "005.010": (Measurand("11502-2", "Laboratory report", curve_document("Immunofixation")),),
    "060.001": (Measurand("19113-0", "IgE [Units/volume] in Serum or Plasma", measured_quantity("0.10", "0.35", "k[IU]/L")),),
    "190.100": (Measurand("56888-1", "HIV 1+2 Ab+HIV1 p24 Ag [Presence] in Serum", coded_value(_NEGATIVE)),),
    "190.110": (Measurand("5196-1", "Hepatitis B virus surface Ag [Presence] in Serum", coded_value(_NEGATIVE, _POSITIVE)),),
}

_DEFAULT_PANEL = (
    Measurand("11502-2", "Laboratory report", text_value("performed; see the document", "no pathological findings")),
)


def observations(item: str, rng: Random, collected: datetime) -> list[Json]:
    """The observations of one test; a test without a panel is reported as text."""
    return [measurand.measure(rng, collected) for measurand in PANELS.get(item, _DEFAULT_PANEL)]
