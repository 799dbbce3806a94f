"""What the stand-in measures for each test: real LOINC codes, and between them every value form of the interface."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from random import Random

from lab_sandbox.demo.lis.values import (
    ValueGenerator,
    below_limit,
    coded_value,
    curve_document,
    date_time,
    measured_quantity,
    preceding_day,
    sampled_curve,
    text_value,
    time_of_day,
    value_range,
    value_ratio,
)
from lab_sandbox.partner.plain_json import Json

LOINC = "http://loinc.org"
_NEGATIVE, _POSITIVE = ("260385009", "Negative"), ("10828004", "Positive")


@dataclass(frozen=True, slots=True)
class Measurand:
    """One thing that is observed: its LOINC code and how its value is drawn."""

    code: str
    display: str
    draw: ValueGenerator

    def measure(self, rng: Random, collected: datetime) -> Json:
        """One observation; its code names it from version to version."""
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
    """The observations of one test; a test without a panel of its own is reported in words."""
    return [measurand.measure(rng, collected) for measurand in PANELS.get(item, _DEFAULT_PANEL)]
