"""Makers of results: each draws one value in one of the interface's value forms, with the digits that a device would show."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from lab_sandbox.demo.lis.pdf import picture
from lab_sandbox.partner.plain_json import Json

UCUM = "http://unitsofmeasure.org"
SNOMED = "http://snomed.info/sct"

Draw = Callable[[Random, datetime], Json]
"""Draws the value fields of an observation of a specimen that was collected at the given time."""


def amount(value: Decimal | str, unit: str, comparator: str | None = None) -> Json:
    """A quantity with a UCUM unit; the digits stay as given."""
    bare: Json = {"value": Decimal(value), "unit": unit, "system": UCUM, "code": unit}
    return bare if comparator is None else {**bare, "comparator": comparator}


def quantity(low: str, high: str, unit: str) -> Draw:
    """A measured amount around the reference range `low` to `high`, with as many places as they have."""
    lowest, highest = Decimal(low), Decimal(high)
    places = int(lowest.as_tuple().exponent)
    step = Decimal(1).scaleb(places)

    def draw(luck: Random, _collected: datetime) -> Json:
        spread = int((highest - lowest) / step)
        value = lowest + step * luck.randint(-spread // 3, spread + spread // 3)
        value = max(value, step)
        ranges: Json = {"low": amount(lowest, unit), "high": amount(highest, unit)}
        flag = ["L"] if value < lowest else ["H"] if value > highest else []
        return {"value_quantity": amount(value, unit), "reference_ranges": [ranges], **({"flags": flag} if flag else {})}

    return draw


def below(limit: str, unit: str) -> Draw:
    """Less than the device can tell: a quantity with a comparator."""
    return lambda _luck, _collected: {
        "value_quantity": amount(limit, unit, "<"),
        "reference_ranges": [{"high": amount(limit, unit), "text": f"below {limit} {unit}"}],
    }


def coded(*choices: tuple[str, str], system: str = SNOMED) -> Draw:
    """One of some coded findings."""

    def draw(luck: Random, _collected: datetime) -> Json:
        code, words = luck.choice(choices)
        return {"value_codeable_concept": {"coding": [{"system": system, "code": code, "display": words}], "text": words}}

    return draw


def words(*choices: str) -> Draw:
    """A finding in words."""
    return lambda luck, _collected: {"value_string": luck.choice(choices)}


def span(pairs: Sequence[tuple[str, str]], unit: str) -> Draw:
    """From–to, as under the microscope."""

    def draw(luck: Random, _collected: datetime) -> Json:
        low, high = luck.choice(pairs)
        return {"value_range": {"low": amount(low, unit), "high": amount(high, unit)}}

    return draw


def ratio(low: str, high: str, of: str, per: str) -> Draw:
    """So much of one thing to one of another."""
    lowest, highest = Decimal(low), Decimal(high)
    step = Decimal(1).scaleb(int(lowest.as_tuple().exponent))

    def draw(luck: Random, _collected: datetime) -> Json:
        value = lowest + step * luck.randint(0, int((highest - lowest) / step))
        return {"value_ratio": {"numerator": amount(value, of), "denominator": amount("1", per)}}

    return draw


def curve(unit: str, minutes: int, points: int) -> Draw:
    """A series of samples at even distances."""

    def draw(luck: Random, _collected: datetime) -> Json:
        data = " ".join(str(Decimal(luck.randint(420, 980)).scaleb(-2)) for _ in range(points))
        period = Decimal(minutes * 60_000)
        return {"value_sampled_data": {"origin": amount("0", unit), "period": period, "dimensions": 1, "data": data}}

    return draw


def traced(title: str) -> Draw:
    """A curve as a picture: a document that is itself the value."""

    def draw(luck: Random, _collected: datetime) -> Json:
        content = picture(title, [luck.random() for _ in range(24)])
        encoded = base64.b64encode(content).decode("ascii")
        return {"value_attachment": {"content": encoded, "content_type": "application/pdf", "title": title}}

    return draw


def time_of_day(_luck: Random, collected: datetime) -> Json:
    """When on its day the specimen was collected."""
    return {"value_time": collected.strftime("%H:%M:%S")}


def moment(_luck: Random, collected: datetime) -> Json:
    """When the specimen was collected."""
    return {"value_date_time": collected.isoformat(timespec="seconds")}


def day_before(_luck: Random, collected: datetime) -> Json:
    """The twenty-four hours up to the collection."""
    start = collected - timedelta(hours=24)
    return {"value_period": {"start": start.isoformat(timespec="seconds"), "end": collected.isoformat(timespec="seconds")}}
