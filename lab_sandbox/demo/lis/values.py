"""Makers of results: each draws one value in one of the interface's value forms, with the digits that a device would show."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from lab_sandbox.demo.lis.pdf import build_curve_pdf
from lab_sandbox.partner.plain_json import Json

UCUM = "http://unitsofmeasure.org"
SNOMED = "http://snomed.info/sct"

ValueGenerator = Callable[[Random, datetime], Json]
"""Draws the value fields of an observation of a specimen that was collected at the given time."""


def amount(value: Decimal | str, unit: str, comparator: str | None = None) -> Json:
    """A quantity with a UCUM unit; the digits stay as given."""
    bare: Json = {"value": Decimal(value), "unit": unit, "system": UCUM, "code": unit}
    return bare if comparator is None else {**bare, "comparator": comparator}


def measured_quantity(low: str, high: str, unit: str) -> ValueGenerator:
    """A measured amount around the reference range `low` to `high`, with as many places as they have."""
    lowest, highest = Decimal(low), Decimal(high)
    places = int(lowest.as_tuple().exponent)
    step = Decimal(1).scaleb(places)

    def draw(rng: Random, _collected: datetime) -> Json:
        spread = int((highest - lowest) / step)
        value = lowest + step * rng.randint(-spread // 3, spread + spread // 3)
        value = max(value, step)
        ranges: Json = {"low": amount(lowest, unit), "high": amount(highest, unit)}
        flag = ["L"] if value < lowest else ["H"] if value > highest else []
        return {"value_quantity": amount(value, unit), "reference_ranges": [ranges], **({"flags": flag} if flag else {})}

    return draw


def below_limit(limit: str, unit: str) -> ValueGenerator:
    """Less than the device can tell: a quantity with a comparator."""
    return lambda _luck, _collected: {
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
    """A finding in words."""
    return lambda luck, _collected: {"value_string": luck.choice(choices)}


def value_range(pairs: Sequence[tuple[str, str]], unit: str) -> ValueGenerator:
    """From–to, as under the microscope."""

    def draw(rng: Random, _collected: datetime) -> Json:
        low, high = rng.choice(pairs)
        return {"value_range": {"low": amount(low, unit), "high": amount(high, unit)}}

    return draw


def value_ratio(low: str, high: str, numerator_unit: str, denominator_unit: str) -> ValueGenerator:
    """So much of one thing to one of another."""
    lowest, highest = Decimal(low), Decimal(high)
    step = Decimal(1).scaleb(int(lowest.as_tuple().exponent))

    def draw(rng: Random, _collected: datetime) -> Json:
        value = lowest + step * rng.randint(0, int((highest - lowest) / step))
        return {"value_ratio": {"numerator": amount(value, numerator_unit), "denominator": amount("1", denominator_unit)}}

    return draw


def sampled_curve(unit: str, minutes: int, points: int) -> ValueGenerator:
    """A series of samples at even distances."""

    def draw(rng: Random, _collected: datetime) -> Json:
        data = " ".join(str(Decimal(rng.randint(420, 980)).scaleb(-2)) for _ in range(points))
        period = Decimal(minutes * 60_000)
        return {"value_sampled_data": {"origin": amount("0", unit), "period": period, "dimensions": 1, "data": data}}

    return draw


def curve_document(title: str) -> ValueGenerator:
    """A curve as a picture: a document that is itself the value."""

    def draw(rng: Random, _collected: datetime) -> Json:
        content = build_curve_pdf(title, [rng.random() for _ in range(24)])
        encoded = base64.b64encode(content).decode("ascii")
        return {"value_attachment": {"content": encoded, "content_type": "application/pdf", "title": title}}

    return draw


def time_of_day(_luck: Random, collected: datetime) -> Json:
    """When on its day the specimen was collected."""
    return {"value_time": collected.strftime("%H:%M:%S")}


def date_time(_luck: Random, collected: datetime) -> Json:
    """When the specimen was collected."""
    return {"value_date_time": collected.isoformat(timespec="seconds")}


def preceding_day(_luck: Random, collected: datetime) -> Json:
    """The twenty-four hours up to the collection."""
    start = collected - timedelta(hours=24)
    return {"value_period": {"start": start.isoformat(timespec="seconds"), "end": collected.isoformat(timespec="seconds")}}
