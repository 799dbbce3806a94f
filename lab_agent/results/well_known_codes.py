"""Units and answers whose standard code is certain, for proposals to a person. A LOINC code is never among them.

Units are compared without regard to case and blanks, except where case decides: `G/l` is giga in Germany, and gram elsewhere.
"""

from __future__ import annotations

from lab_agent.results.mapping_tables import is_ucum

_SNOMED = "http://snomed.info/sct"
_AMBIGUOUS = frozenset({"G/l", "G/L", "M/l", "M/L", "P/l", "mg%", "MU/L", "Mu/l"})
_EXACT_UNITS = {
    "T/l": "10*12/L", "T/L": "10*12/L", "Gpt/l": "10*9/L", "Gpt/L": "10*9/L", "Tpt/l": "10*12/L", "Tpt/L": "10*12/L",
    "mU/l": "mU/L", "mU/L": "mU/L", "M/uL": "10*6/uL", "M/µL": "10*6/uL", "M/mcL": "10*6/uL", "K/uL": "10*3/uL",
    "Mio/µl": "10*6/uL", "Tsd/µl": "10*3/uL",
}  # fmt: skip
_UNITS = {
    "%": "%", "g/l": "g/L", "g/dl": "g/dL", "mg/dl": "mg/dL", "mg/l": "mg/L", "ug/l": "ug/L", "ug/dl": "ug/dL", "ug/ml": "ug/mL",
    "ng/ml": "ng/mL", "ng/l": "ng/L", "ng/dl": "ng/dL", "pg/ml": "pg/mL", "pg/dl": "pg/dL", "mol/l": "mol/L", "mmol/l": "mmol/L",
    "umol/l": "umol/L", "nmol/l": "nmol/L", "pmol/l": "pmol/L", "mmol/mol": "mmol/mol", "mg/mmol": "mg/mmol", "mg/g": "mg/g",
    "u/l": "U/L", "u/ml": "U/mL", "ku/l": "kU/L", "iu/l": "[IU]/L", "iu/ml": "[IU]/mL", "miu/l": "m[IU]/L", "miu/ml": "m[IU]/mL",
    "uiu/ml": "u[IU]/mL", "kiu/l": "k[IU]/L", "fl": "fL", "pg": "pg", "mm/h": "mm/h", "mm/hr": "mm/h", "mm/std": "mm/h",
    "10*9/l": "10*9/L", "10*12/l": "10*12/L", "10*3/ul": "10*3/uL", "10*6/ul": "10*6/uL", "k/ul": "10*3/uL", "/ul": "/uL",
    "cells/ul": "/uL", "thou/ul": "10*3/uL", "mil/ul": "10*6/uL", "ml/min": "mL/min", "meq/l": "meq/L", "mmhg": "mm[Hg]",
    "mosm/kg": "mosm/kg", "sec": "s", "sek": "s", "s": "s", "min": "min", "/hpf": "/[HPF]", "ml": "mL", "mg": "mg", "g": "g",
    "cfu/ml": "{CFU}/mL", "kbe/ml": "{CFU}/mL", "mg/24h": "mg/(24.h)", "ml/min/1.73m2": "mL/min/{1.73_m2}", "ph": "[pH]",
    "г/л": "g/L", "г/дл": "g/dL", "мг/л": "mg/L", "мг/дл": "mg/dL", "мкг/л": "ug/L", "нг/мл": "ng/mL", "пг/мл": "pg/mL",
    "ммоль/л": "mmol/L", "мкмоль/л": "umol/L", "нмоль/л": "nmol/L", "пмоль/л": "pmol/L", "ед/л": "U/L", "ед/мл": "U/mL",
    "ме/л": "[IU]/L", "ме/мл": "[IU]/mL", "мме/л": "m[IU]/L", "мме/мл": "m[IU]/mL", "мкме/мл": "u[IU]/mL", "мм/ч": "mm/h",
    "мм/час": "mm/h", "фл": "fL", "пг": "pg", "сек": "s", "с": "s", "кл/мкл": "/uL", "10*9/л": "10*9/L", "10*12/л": "10*12/L",
    "кое/мл": "{CFU}/mL", "тыс/мкл": "10*3/uL", "млн/мкл": "10*6/uL",
}  # fmt: skip
_MICRO = str.maketrans({"µ": "u", "μ": "u", "×": "x"})
_ANSWERS = {
    ("negative", "neg", "negativ", "отрицательно", "отрицательный", "отр"): ("260385009", "Negative"),
    ("positive", "pos", "positiv", "положительно", "положительный", "пол"): ("10828004", "Positive"),
    ("not detected", "nicht nachweisbar", "не обнаружено", "не обнаружены"): ("260415000", "Not detected"),
    ("detected", "nachweisbar", "обнаружено", "обнаружены"): ("260373001", "Detected"),
}


def propose_ucum(unit: str) -> str | None:
    """The UCUM code of a unit, if it is certain."""
    text = unit.strip()
    if text in _AMBIGUOUS:
        return None
    if exact := _EXACT_UNITS.get(text):
        return exact
    plain = text.translate(_MICRO).casefold().replace(" ", "").replace("mcg", "ug").replace("mcl", "ul")
    plain = plain.removeprefix("x").replace("^", "*").replace("10e", "10*").replace("**", "*")
    found = _UNITS.get(plain)
    return found if found is not None and is_ucum(found) else None


def propose_answer(answer: str, text: str | None) -> tuple[str, str, str] | None:
    """System, code and display of an answer, by its code or its text, if it is certain."""
    given = {answer.strip().casefold(), (text or "").strip().casefold()}
    return next(((_SNOMED, code, display) for words, (code, display) in _ANSWERS.items() if given & set(words)), None)
