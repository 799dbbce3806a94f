"""The sheets about biomaterial: containers, specimen types, and which of them each item requires."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal

from lab_agent.catalogue.model import Container, Requirement, SpecimenOption, Stability, TimePoint
from lab_agent.catalogue.spreadsheet.cells import MAX_HOURS, RowReader, SpreadsheetProblems, rows_by_key
from lab_agent.catalogue.spreadsheet.schema import SheetTable

_MAX_TUBES = 50
_MINUTES_PATTERN = re.compile("[0-9]{1,5}")
_OWN_INFO_PREFIXES = ("specimen=", "site=", "time=", "second=")  # what pre-analytics itself writes into supportingInfo

_RequirementsByItem = dict[str, list[Requirement]]


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
        cells.add_problem("dead_volume", "leaves no room", "write a dead volume below the capacity")
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
    table: SheetTable,
    items: set[str],
    types: Mapping[str, str],
    containers: Mapping[str, Container],
    problems: SpreadsheetProblems,
) -> tuple[_RequirementsByItem, _RequirementsByItem]:
    """The requirements of each item: those to choose from, and those always taken."""
    by_role: dict[str, _RequirementsByItem] = {"option": defaultdict(list), "required": defaultdict(list)}
    seen: dict[tuple[object, ...], int] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        item, code = cells.reference("item", items, "items"), cells.reference("specimen_code", types, "specimen_types")
        role = cells.one_of("role", ("option", "required"))
        requirement = _read_requirement(item or "", code or "0", types.get(code or "", ""), cells, containers, items)
        if item is None or code is None or cells.has_unreadable("bodysite_code", "container_type"):
            continue
        key = (item, code, requirement.option.bodysite_code, requirement.option.container_type)
        if (before := seen.setdefault(key, row.number)) != row.number:
            problems.add(row, None, f"has the same item, type, body site and container as row {before}", "keep one of the two")
        by_role[role][item].append(requirement)
    return by_role["option"], by_role["required"]


def _read_requirement(
    item: str, code: str, name: str, cells: RowReader, containers: Mapping[str, Container], items: set[str]
) -> Requirement:
    container = containers.get(cells.reference("container_type", containers, "containers") or "")
    hours = _read_stability_hours(cells)
    return Requirement(
        item_id=item,
        option=_read_specimen_option(code, name, cells, container),
        container=container,
        volume=_read_volume(cells, container),
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
        cells.add_problem("stability_hours", "is more than a century", "write hours, as in 24")
    has_hours, has_text = bool(cells.text("stability_hours").strip("0")), bool(cells.text("stability"))
    if has_hours != has_text and not cells.has_unreadable("stability", "stability_hours"):
        cells.add_problem("stability", "goes with stability_hours", "fill both, or none")
    return hours


def _read_specimen_option(code: str, name: str, cells: RowReader, container: Container | None) -> SpecimenOption:
    if "," in cells.text("bodysite_code"):
        cells.add_problem("bodysite_code", "holds a comma, which separates the values of supportingInfo", "use no comma")
    return SpecimenOption(
        description=cells.text("description"),
        specimen_code=int(code),
        specimen_name=name,
        bodysite_code=cells.optional_text("bodysite_code"),
        bodysite_name=cells.text("bodysite_name"),
        container_type=container.type if container else None,
        container_name=container.name if container else "",
    )


def _read_volume(cells: RowReader, container: Container | None) -> Decimal:
    volume = cells.number("volume")
    if container and container.usable_volume is not None and volume > container.usable_volume * _MAX_TUBES:
        what = f"would fill more than {_MAX_TUBES} tubes of {container.type!r}"
        cells.add_problem("volume", what, f"write it in the container's unit {container.unit}".rstrip())
        return Decimal(0)
    if cells.text("volume") and not cells.text("volume").strip("0.,"):
        cells.add_problem("volume", "is 0", "write the volume, or the number of pieces")
    return volume


def _read_incompatible_items(cells: RowReader, items: set[str]) -> frozenset[str]:
    codes = cells.codes("incompatible_with")
    for code in codes:
        if code not in items and "items" not in cells.problems.partial_sheets:
            cells.add_problem("incompatible_with", f"{code!r} is not in the sheet items", "correct the code")
    return frozenset(codes)


def _read_time_points(cells: RowReader) -> tuple[TimePoint, ...]:
    points: dict[int, TimePoint] = {}
    for line in cells.lines("time_points"):
        minutes, _, method = (part.strip() for part in line.partition("="))
        if not _MINUTES_PATTERN.fullmatch(minutes) or not method or int(minutes) in points:
            what = f"{line[:100]!r} is not a time point, or is given twice"
            cells.add_problem("time_points", what, "write minutes = collection protocol")
            continue
        points[int(minutes)] = TimePoint(int(minutes), method)
    return tuple(points[minutes] for minutes in sorted(points))


def _read_supporting_info(cells: RowReader) -> tuple[str, ...]:
    values = cells.codes("supporting_info")
    for value in values:
        if "," in value or value.startswith(_OWN_INFO_PREFIXES):
            hint = f"use no commas, and none of {', '.join(_OWN_INFO_PREFIXES)}"
            cells.add_problem("supporting_info", f"{value!r} cannot be sent", hint)
    return values
