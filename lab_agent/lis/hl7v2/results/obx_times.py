"""Times of the values of one OBR (OBX-14) where they differ, as in a curve of glucose.

An Observation of the interface has no time of its own, and the report has one time for all of them. So such a time is said in
the comment of its value. Many analysers write there when they measured: the map can ask to leave it out (`value_times`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lab_agent.lis.hl7v2.results.obx_texts import readable_text
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_date_or_time


def times_of_values(group: ObrGroup, reader: ObxValueReader) -> Mapping[int, str]:
    """A comment with the time of each OBX, by its number; none where all of them have the same time, or none."""
    texts = {entry.number: entry.obx.text(14) for entry in group.obx_entries if entry.obx.text(14)}
    if reader.field_map.results.value_times == "ignore" or len(set(texts.values())) < 2:
        return {}
    return {number: f"time of this value: {_describe(text, reader)}" for number, text in texts.items()}


def _describe(text: str, reader: ObxValueReader) -> str:
    """The time as a person reads it; as it was sent where it is none, or where its zone is not known."""
    try:
        found = parse_date_or_time(text, reader.zone)
    except InvalidTimestampError:
        return readable_text(text)
    return found.isoformat(" ", "minutes") if isinstance(found, datetime) else str(found)
