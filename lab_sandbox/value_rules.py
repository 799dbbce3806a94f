"""The forms of Observation.value[x] and of referenceRange ("Resources", Observation): exactly one value, in its own form."""

import re
from collections.abc import Callable
from typing import Any, Final

from lab_sandbox.index import as_list
from lab_sandbox.outcome import Problems
from lab_sandbox.shapes import is_date_time, is_number, is_text
from lab_sandbox.wire import Json

_TIME_PATTERN = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def _is_quantity(value: Any) -> bool:
    return _is_object(value) and ("value" not in value or is_number(value["value"]))


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _TIME_PATTERN.fullmatch(value) is not None


VALUE_FORMS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "valueQuantity": (_is_quantity, "an object whose value is a number"),
    "valueCodeableConcept": (_is_object, "an object"),
    "valueString": (is_text, "a text"),
    "valueRange": (_is_object, "an object"),
    "valueRatio": (_is_object, "an object"),
    "valueSampledData": (_is_object, "an object"),
    "valueAttachment": (_is_object, "an object"),
    "valueTime": (_is_time, "a time hh:mm:ss"),
    "valueDateTime": (is_date_time, "a date-time"),
    "valuePeriod": (_is_object, "an object"),
}
RANGE_PARTS: Final = ("low", "high", "meaning", "age", "text")


def check_value(observation: Json, problems: Problems) -> None:
    """Cardinality 1: one of the value forms, and in its form."""
    given = [name for name in observation if name.startswith("value")]
    if len(given) != 1 or given[0] not in VALUE_FORMS:
        problems.add(
            "Observation.value[x]", "observation-value", f"exactly one of {', '.join(VALUE_FORMS)}; came: {given or 'none'}"
        )
        return
    fits, form = VALUE_FORMS[given[0]]
    if not fits(observation[given[0]]):
        problems.add(f"Observation.{given[0]}", "observation-value", f"{form} is expected")


def check_ranges(observation: Json, problems: Problems) -> None:
    """Each range has at least one of its parts; the bounds are quantities."""
    for position, part in enumerate(as_list(observation.get("referenceRange"))):
        element = f"Observation.referenceRange[{position}]"
        if not isinstance(part, dict) or not any(name in part for name in RANGE_PARTS):
            problems.add(element, "observation-range", f"parts are {', '.join(RANGE_PARTS)}")
            continue
        for name in ("low", "high"):
            if name in part and not _is_quantity(part[name]):
                problems.add(f"{element}.{name}", "observation-range", "an object whose value is a number is expected")
