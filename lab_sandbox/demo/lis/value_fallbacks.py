"""What HL7 v2 can say of an observation: the value forms that it has not are said in words, as a laboratory does."""

from __future__ import annotations

from dataclasses import replace

from lab_sandbox.demo.lis.messages import ResultMessage
from lab_sandbox.partner.errors import Json

_UNSUPPORTED_FIELDS = frozenset({"value_sampled_data", "value_period", "value_attachment", "id"})


def apply_value_fallbacks(message: ResultMessage) -> ResultMessage:
    """The message in the forms of HL7 v2; a picture that is a value becomes a document of the report."""
    seen = message.body.get("observations")
    if not seen:
        return message
    pictures = [one["value_attachment"] for one in seen if "value_attachment" in one]
    body = {**message.body, "observations": [_replace_unsupported(one) for one in seen]}
    if pictures:
        body["documents"] = [*body.get("documents", ()), *pictures]
    return replace(message, body=body)


def _replace_unsupported(observation: Json) -> Json:
    said = {key: value for key, value in observation.items() if key not in _UNSUPPORTED_FIELDS}
    if "value_attachment" in observation:
        said["value_string"] = "see the document"
    if "value_sampled_data" in observation:
        said["value_string"] = observation["value_sampled_data"]["data"]
    if "value_period" in observation:
        period = observation["value_period"]
        said["value_string"] = f"{period['start']} to {period['end']}"
    if "value_ratio" in observation:
        said["value_ratio"] = {end: {"value": one["value"]} for end, one in observation["value_ratio"].items()}
    if "reference_ranges" in observation:
        said["reference_ranges"] = [_add_bound_text(one) for one in observation["reference_ranges"]]
    return said


def _add_bound_text(bounds: Json) -> Json:
    """An upper bound alone is written as `<5`, and read so."""
    return {**bounds, "text": f"<{bounds['high']['value']}"} if "high" in bounds and "low" not in bounds else bounds
