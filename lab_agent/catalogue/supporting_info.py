"""The supportingInfo of a tube: written by pre-analytics, copied by the partner into the Specimen, read again at intake.

Several values separated by commas (interface: Specimen, extension). Ours are `specimen=<code>`, `site=<code>`,
`time=<minutes>` and `second=<barcode>`, since a Specimen has no field for a body site or a time point, and pre-analytics none for
a second barcode; the laboratory's own values follow.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SupportingInfo:
    """What a tube's supportingInfo says. `minutes` is the time point of a tolerance test."""

    specimen_code: str | None = None
    bodysite_code: str | None = None
    minutes: int | None = None
    values: tuple[str, ...] = ()
    second_labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Give the text for the wire."""
        named = (("specimen", self.specimen_code), ("site", self.bodysite_code), ("time", self.minutes))
        ours = [f"{name}={value}" for name, value in named if value is not None]
        return ",".join([*ours, *(f"second={label}" for label in self.second_labels), *self.values])


def parse_supporting_info(text: str) -> SupportingInfo:
    """Read the text of a Specimen; what is not ours is kept in `values` as it came."""
    named: dict[str, str] = {}
    values, second_labels = [], []
    for value in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = value.partition("=")
        if name in {"specimen", "site"} or (name == "time" and rest.isdecimal()):
            named.setdefault(name, rest)
        elif name == "second" and rest:
            second_labels.append(rest)
        else:
            values.append(value)
    minutes = int(named["time"]) if "time" in named else None
    return SupportingInfo(named.get("specimen"), named.get("site"), minutes, tuple(values), tuple(second_labels))
