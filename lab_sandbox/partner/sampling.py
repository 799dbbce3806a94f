"""When the tubes were filled. The samples of a tolerance test carry times that follow their sequence (interface: Specimen)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from lab_sandbox.partner.plain_json import Json

_DELAY_PATTERN = re.compile(r"(\d+)\s*(h|min)", re.IGNORECASE)
_DEFAULT_INTERVAL_MINUTES = 60
_LAST_SAMPLE_AGE = timedelta(minutes=10)


def collection_times(specimens: Sequence[Json], ordered_at: datetime) -> list[datetime]:
    """One time for each element of the pre-analytics answer, the last of them ten minutes before `ordered_at`.

    Tubes of one biomaterial and container that are to be taken by different methods may be the samples of a tolerance test:
    their minutes are read from the method text; where no text names any, their order in the answer gives each a time.
    """
    minutes = _sample_offsets(specimens)
    start = ordered_at - _LAST_SAMPLE_AGE - timedelta(minutes=max(minutes, default=0))
    return [start + timedelta(minutes=offset) for offset in minutes]


def parse_minutes(method: str) -> int:
    """The minutes that a method text names (`60 min after the load`, `2 hours after`); 0 when it names none (fasting)."""
    found = _DELAY_PATTERN.search(method)
    if found is None:
        return 0
    return int(found[1]) * (60 if found[2].lower() == "h" else 1)


def _sample_offsets(specimens: Sequence[Json]) -> list[int]:
    methods = [str(one["collection"]["method"]) for one in specimens]
    offsets = [parse_minutes(method) for method in methods]
    for places in _group_by_tube(specimens):
        if not any(offsets[place] for place in places):
            sequence = list(dict.fromkeys(methods[place] for place in places))
            for place in places:
                offsets[place] = sequence.index(methods[place]) * _DEFAULT_INTERVAL_MINUTES
    return offsets


def _group_by_tube(specimens: Sequence[Json]) -> list[list[int]]:
    alike: dict[tuple[object, object], list[int]] = defaultdict(list)
    for place, one in enumerate(specimens):
        container = one["container"][0].get("type") if one.get("container") else None
        alike[one["code"], container].append(place)
    return list(alike.values())
