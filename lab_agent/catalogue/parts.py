"""Containers, biomaterial types and requirements out of their sheets."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal

from lab_agent.catalogue.cells import MAX_HOURS, RowReader, SpreadsheetProblems
from lab_agent.catalogue.items import Container, Requirement, SpecimenOption, Stability, TimePoint
from lab_agent.catalogue.sheets import SheetTable

_MAX_TUBES = 50
_MINUTES_PATTERN = re.compile("[0-9]{1,5}")


def rows_by_key(table: SheetTable, column: str, problems: SpreadsheetProblems) -> Iterator[tuple[str | None, RowReader]]:
    """The rows by their key; None for a row without one, or with one that is there already (noted): its cells are checked too."""
    first: dict[str, int] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        key = cells.text(column)
        if key in first:
            problems.add(row, column, f"{key!r} is in row {first[key]} already", "keep one of the two")
            yield None, cells
            continue
        if key:
            first[key] = row.number
        yield key or None, cells


def read_specimen_types(table: SheetTable, problems: SpreadsheetProblems) -> dict[str, str]:
    """Names of the biomaterial types by code."""
    return {
        str(cells.whole_number("specimen_code")): cells.text("specimen_name")
        for key, cells in rows_by_key(table, "specimen_code", problems)
        if key
    }


def read_containers(table: SheetTable, problems: SpreadsheetProblems) -> dict[str, Container]:
    """Containers by type."""
    types = {row.cells.get("container_type", "") for row in table.rows}
    made = [(key, _read_container(key or "", cells, types)) for key, cells in rows_by_key(table, "container_type", problems)]
    return {key: container for key, container in made if key}


def _read_container(key: str, cells: RowReader, types: set[str]) -> Container:
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
        transport_type=cells.reference("transport", types, "containers"),
    )


def read_requirements(
    table: SheetTable, items: set[str], types: Mapping[str, str], vessels: Mapping[str, Container], problems: SpreadsheetProblems
) -> tuple[dict[str, list[Requirement]], dict[str, list[Requirement]]]:
    """Options, and required types, by item."""
    held: dict[str, dict[str, list[Requirement]]] = {"option": defaultdict(list), "required": defaultdict(list)}
    seen: dict[tuple[object, ...], int] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        item, code = cells.reference("item", items, "items"), cells.reference("specimen_code", types, "specimen_types")
        role = cells.one_of("role", ("option", "required"))
        need = _read_requirement(item or "", code or "0", types.get(code or "", ""), cells, vessels, items)
        if item is None or code is None or cells.has_unreadable("bodysite_code", "container_type"):
            continue
        same = (item, code, need.option.bodysite_code, need.option.container_type)
        if (before := seen.setdefault(same, row.number)) != row.number:
            problems.add(row, None, f"says the same item, type, body site and container as row {before}", "keep one of the two")
        held[role][item].append(need)
    return held["option"], held["required"]


def _read_requirement(
    item: str, code: str, name: str, cells: RowReader, vessels: Mapping[str, Container], items: set[str]
) -> Requirement:
    vessel = vessels.get(cells.reference("container_type", vessels, "containers") or "")
    hours = _read_stability_hours(cells)
    if bool(cells.text("stability_hours").strip("0")) != bool(cells.text("stability")) and not cells.has_unreadable(
        "stability", "stability_hours"
    ):
        cells.problems.add(cells.row, "stability", "goes with stability_hours", "fill both, or none")
    return Requirement(
        item_id=item,
        option=_read_specimen_option(code, name, cells, vessel),
        container=vessel,
        volume=_read_volume(cells, vessel),
        method=cells.text("method"),
        processing=cells.lines("processing"),
        stability=Stability(hours, cells.text("stability")) if hours else None,
        own_tube=cells.boolean("own_tube"),
        incompatible=_read_incompatible_items(cells, items),
        time_points=_read_time_points(cells),
        supporting_info=_read_supporting_info(cells),
    )


def _read_stability_hours(cells: RowReader) -> int:
    hours = cells.whole_number("stability_hours")
    if hours > MAX_HOURS:
        cells.problems.add(cells.row, "stability_hours", "is more than a century", "write hours, as in 24")
    return hours


def _read_specimen_option(code: str, name: str, cells: RowReader, vessel: Container | None) -> SpecimenOption:
    if "," in cells.text("bodysite_code"):
        cells.problems.add(cells.row, "bodysite_code", "holds a comma, which separates the values of supportingInfo", "use none")
    return SpecimenOption(
        description=cells.text("description"),
        specimen_code=int(code),
        specimen_name=name,
        bodysite_code=cells.optional_text("bodysite_code"),
        bodysite_name=cells.text("bodysite_name"),
        container_type=vessel.type if vessel else None,
        container_name=vessel.name if vessel else "",
    )


def _read_volume(cells: RowReader, vessel: Container | None) -> Decimal:
    volume = cells.number("volume")
    if vessel and vessel.usable_volume is not None and volume > vessel.usable_volume * _MAX_TUBES:
        what = f"would fill more than {_MAX_TUBES} tubes of {vessel.type!r}"
        cells.problems.add(cells.row, "volume", what, f"write it in the container's unit {vessel.unit}".rstrip())
        return Decimal(0)
    if cells.text("volume") and not cells.text("volume").strip("0.,"):
        cells.problems.add(cells.row, "volume", "is 0", "write the volume, or the number of pieces")
    return volume


def _read_incompatible_items(cells: RowReader, items: set[str]) -> frozenset[str]:
    codes = cells.codes("incompatible_with")
    for code in codes:
        if code not in items and "items" not in cells.problems.partial_sheets:
            cells.problems.add(cells.row, "incompatible_with", f"{code!r} is not in the sheet items", "correct the code")
    return frozenset(codes)


def _read_time_points(cells: RowReader) -> tuple[TimePoint, ...]:
    points: dict[int, TimePoint] = {}
    for line in cells.lines("time_points"):
        minutes, _, method = (part.strip() for part in line.partition("="))
        if not _MINUTES_PATTERN.fullmatch(minutes) or not method or int(minutes) in points:
            cells.problems.add(
                cells.row, "time_points", f"{line[:100]!r} is not a new time point", "write minutes = collection protocol"
            )
            continue
        points[int(minutes)] = TimePoint(int(minutes), method)
    return tuple(points[minutes] for minutes in sorted(points))


def _read_supporting_info(cells: RowReader) -> tuple[str, ...]:
    values = cells.codes("supporting_info")
    for value in values:
        if "," in value or value.startswith(("specimen=", "site=", "time=", "second=")):
            mend = "use no commas, and not specimen=, site=, time=, second="
            cells.problems.add(cells.row, "supporting_info", f"{value!r} cannot be sent", mend)
    return values
