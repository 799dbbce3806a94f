"""Containers, biomaterial types and requirements out of their sheets."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal

from lab_agent.catalogue.cells import LONGEST_HOURS, Cells, Problems
from lab_agent.catalogue.items import Container, Requirement, SpecimenOption, Stability, TimePoint
from lab_agent.catalogue.sheets import Table

_MOST_TUBES = 50
_MINUTES = re.compile("[0-9]{1,5}")


def by_key(table: Table, column: str, problems: Problems) -> Iterator[tuple[str | None, Cells]]:
    """The rows by their key; None for a row without one, or with one that is there already (noted): its cells are checked too."""
    first: dict[str, int] = {}
    for row in table.rows:
        cells = Cells(row, problems)
        key = cells.text(column)
        if key in first:
            problems.add(row, column, f"{key!r} is in row {first[key]} already", "keep one of the two")
            yield None, cells
            continue
        if key:
            first[key] = row.number
        yield key or None, cells


def specimen_types(table: Table, problems: Problems) -> dict[str, str]:
    """Names of the biomaterial types by code."""
    return {
        str(cells.whole("specimen_code")): cells.text("specimen_name")
        for key, cells in by_key(table, "specimen_code", problems)
        if key
    }


def containers(table: Table, problems: Problems) -> dict[str, Container]:
    """Containers by type."""
    types = {row.cells.get("container_type", "") for row in table.rows}
    made = [(key, _container(key or "", cells, types)) for key, cells in by_key(table, "container_type", problems)]
    return {key: container for key, container in made if key}


def _container(key: str, cells: Cells, types: set[str]) -> Container:
    capacity = cells.number("capacity") if cells.text("capacity") else None
    dead = cells.number("dead_volume")
    if capacity is not None and dead >= capacity:
        cells.problems.add(cells.row, "dead_volume", "leaves no room", "write a dead volume below the capacity")
        dead, capacity = Decimal(0), None
    return Container(
        type=key,
        name=cells.text("container_name"),
        description=cells.text("description"),
        capacity=capacity,
        dead_volume=dead,
        unit=cells.text("unit"),
        transport=cells.known("transport", types, "containers"),
    )


def requirements(
    table: Table, items: set[str], types: Mapping[str, str], vessels: Mapping[str, Container], problems: Problems
) -> tuple[dict[str, list[Requirement]], dict[str, list[Requirement]]]:
    """Options, and required types, by item."""
    held: dict[str, dict[str, list[Requirement]]] = {"option": defaultdict(list), "required": defaultdict(list)}
    seen: dict[tuple[object, ...], int] = {}
    for row in table.rows:
        cells = Cells(row, problems)
        item, code = cells.known("item", items, "items"), cells.known("specimen_code", types, "specimen_types")
        role = cells.one_of("role", ("option", "required"))
        need = _requirement(item or "", code or "0", types.get(code or "", ""), cells, vessels, items)
        if item is None or code is None or cells.unread("bodysite_code", "container_type"):
            continue
        same = (item, code, need.option.bodysite_code, need.option.container_type)
        if (before := seen.setdefault(same, row.number)) != row.number:
            problems.add(row, None, f"says the same item, type, body site and container as row {before}", "keep one of the two")
        held[role][item].append(need)
    return held["option"], held["required"]


def _requirement(item: str, code: str, name: str, cells: Cells, vessels: Mapping[str, Container], items: set[str]) -> Requirement:
    vessel = vessels.get(cells.known("container_type", vessels, "containers") or "")
    hours = _stability_hours(cells)
    if bool(cells.text("stability_hours").strip("0")) != bool(cells.text("stability")) and not cells.unread(
        "stability", "stability_hours"
    ):
        cells.problems.add(cells.row, "stability", "goes with stability_hours", "fill both, or none")
    return Requirement(
        item_id=item,
        option=_option(code, name, cells, vessel),
        container=vessel,
        volume=_volume(cells, vessel),
        method=cells.text("method"),
        processing=cells.lines("processing"),
        stability=Stability(hours, cells.text("stability")) if hours else None,
        own_tube=cells.yes("own_tube"),
        incompatible=_incompatible(cells, items),
        time_points=_time_points(cells),
        supporting_info=_supporting_info(cells),
    )


def _stability_hours(cells: Cells) -> int:
    hours = cells.whole("stability_hours")
    if hours > LONGEST_HOURS:
        cells.problems.add(cells.row, "stability_hours", "is more than a century", "write hours, as in 24")
    return hours


def _option(code: str, name: str, cells: Cells, vessel: Container | None) -> SpecimenOption:
    if "," in cells.text("bodysite_code"):
        cells.problems.add(cells.row, "bodysite_code", "holds a comma, which separates the values of supportingInfo", "use none")
    return SpecimenOption(
        description=cells.text("description"),
        specimen_code=int(code),
        specimen_name=name,
        bodysite_code=cells.maybe("bodysite_code"),
        bodysite_name=cells.text("bodysite_name"),
        container_type=vessel.type if vessel else None,
        container_name=vessel.name if vessel else "",
    )


def _volume(cells: Cells, vessel: Container | None) -> Decimal:
    volume = cells.number("volume")
    if vessel and vessel.usable is not None and volume > vessel.usable * _MOST_TUBES:
        what = f"would fill more than {_MOST_TUBES} tubes of {vessel.type!r}"
        cells.problems.add(cells.row, "volume", what, f"write it in the container's unit {vessel.unit}".rstrip())
        return Decimal(0)
    if cells.text("volume") and not cells.text("volume").strip("0.,"):
        cells.problems.add(cells.row, "volume", "is 0", "write the volume, or the number of pieces")
    return volume


def _incompatible(cells: Cells, items: set[str]) -> frozenset[str]:
    codes = cells.codes("incompatible_with")
    for code in codes:
        if code not in items and "items" not in cells.problems.partial:
            cells.problems.add(cells.row, "incompatible_with", f"{code!r} is not in the sheet items", "correct the code")
    return frozenset(codes)


def _time_points(cells: Cells) -> tuple[TimePoint, ...]:
    points: dict[int, TimePoint] = {}
    for line in cells.lines("time_points"):
        minutes, _, method = (part.strip() for part in line.partition("="))
        if not _MINUTES.fullmatch(minutes) or not method or int(minutes) in points:
            cells.problems.add(
                cells.row, "time_points", f"{line[:100]!r} is not a new time point", "write minutes = collection protocol"
            )
            continue
        points[int(minutes)] = TimePoint(int(minutes), method)
    return tuple(points[minutes] for minutes in sorted(points))


def _supporting_info(cells: Cells) -> tuple[str, ...]:
    values = cells.codes("supporting_info")
    for value in values:
        if "," in value or value.startswith(("specimen=", "site=", "time=", "second=")):
            mend = "use no commas, and not specimen=, site=, time=, second="
            cells.problems.add(cells.row, "supporting_info", f"{value!r} cannot be sent", mend)
    return values
