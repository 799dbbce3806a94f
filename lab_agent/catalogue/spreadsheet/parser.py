"""Sheets into a catalogue: items with their parts, contracts with their items, turnaround and notices.

Everything is checked here, so that a request never meets a contradiction: codes that no sheet defines, keys given twice,
items that no contract offers a price for, conflicting questions. All problems are raised together.

Containers, biomaterial types and requirements out of their sheets.

Questions, their answers, and which item asks them, out of their sheets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from lab_agent.catalogue.model import (
    AnswerOption,
    Catalogue,
    Container,
    Contract,
    Item,
    Question,
    QuestionRef,
    QuestionType,
    Requirement,
    SpecimenOption,
    Stability,
    TimePoint,
)
from lab_agent.catalogue.spreadsheet.cells import (
    MAX_HOURS,
    RowReader,
    SpreadsheetProblems,
    check_required_cells,
    partially_read_sheets,
)
from lab_agent.catalogue.spreadsheet.schema import SHEETS, SheetTable
from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped, Turnaround
from lab_agent.domain.label_pools import IdentifierPattern
from lab_agent.errors import CatalogueError, Problem

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


def read_questions(table: SheetTable, options: SheetTable, problems: SpreadsheetProblems) -> dict[str, Question]:
    """Questions by linkId, in the order of the sheet."""
    read = list(rows_by_key(table, "link_id", problems))
    rows = {key: cells for key, cells in read if key}
    groups = {key for key, cells in rows.items() if cells.text("type").lower() == QuestionType.GROUP}
    answers = _read_answer_options(options, rows, problems)
    made = [(key, _read_question(key, cells, groups, answers.get(key or "", ()))) for key, cells in read]
    found = {key: question for key, question in made if key}
    _check_question_tree(found, rows, problems)
    return found


def _read_answer_options(
    table: SheetTable, rows: Mapping[str, RowReader], problems: SpreadsheetProblems
) -> dict[str, tuple[AnswerOption, ...]]:
    held: dict[str, tuple[AnswerOption, ...]] = defaultdict(tuple)
    for row in table.rows:
        cells = RowReader(row, problems)
        key = cells.reference("link_id", rows.keys(), "questions")
        answer = AnswerOption(cells.text("system"), cells.text("code"))
        if key and rows[key].text("type").lower() != QuestionType.CHOICE and not rows[key].has_unreadable("type"):
            problems.add(row, "link_id", f"question {key!r} is not of type choice", "make it a choice, or remove the answer")
        elif key and answer in held[key] and not cells.has_unreadable("system", "code"):
            problems.add(row, "code", f"{answer.code!r} is an answer of {key!r} already", "keep one of the two")
        elif key:
            held[key] += (answer,)
    return held


def _read_question(key: str | None, cells: RowReader, groups: set[str], options: tuple[AnswerOption, ...]) -> Question:
    kind = QuestionType(cells.one_of("type", (each.value for each in QuestionType)))
    if key and kind is QuestionType.CHOICE and not options and "options" not in cells.problems.partial_sheets:
        cells.problems.add(cells.row, "type", "is choice, and the sheet options has no answer for it", "add its answers")
    parent = cells.reference("parent", groups, "questions as a group")
    return Question(key or "", cells.text("text"), kind, cells.boolean("repeats"), parent, options)


def _check_question_tree(found: Mapping[str, Question], rows: Mapping[str, RowReader], problems: SpreadsheetProblems) -> None:
    """One top group; every chain of parents ends there."""
    ungrouped = (key for key, each in found.items() if each.parent is None and not rows[key].has_unreadable("parent"))
    tops = [key for key in ungrouped if not rows[key].text("parent")]
    for key in tops[1:]:
        problems.add(
            rows[key].row, "parent", f"is empty, as for {tops[0]!r}", "put the question into a group: there is one top group"
        )
    if tops and found[tops[0]].type is not QuestionType.GROUP:
        problems.add(rows[tops[0]].row, "type", "of the top question is not group", "put the questions into one group")
    for key in found:
        seen, at = {key}, found[key].parent
        while at is not None and at not in seen:
            seen.add(at)
            at = found[at].parent
        if at is not None:
            problems.add(rows[key].row, "parent", "goes round in a circle", "let one group have no parent")


def read_question_refs(
    table: SheetTable, items: set[str], questions: Mapping[str, Question], problems: SpreadsheetProblems
) -> dict[str, tuple[QuestionRef, ...]]:
    """What each item asks."""
    held: dict[str, dict[str, QuestionRef]] = defaultdict(dict)
    for row in table.rows:
        cells = RowReader(row, problems)
        item, link_id = cells.reference("item", items, "items"), cells.reference("link_id", questions.keys(), "questions")
        required = cells.boolean("required")
        if not item or not link_id:
            continue
        if questions[link_id].type is QuestionType.GROUP and "questions" not in problems.partial_sheets:
            problems.add(row, "link_id", f"{link_id!r} is a group", "name the questions of the group")
        elif link_id in held[item]:
            problems.add(row, "link_id", f"{link_id!r} is asked by {item!r} already", "keep one of the two")
        else:
            held[item][link_id] = QuestionRef(link_id, required)
    return {item: tuple(each.values()) for item, each in held.items()}


_TurnaroundsByItem = Mapping[tuple[str, str | None], Turnaround]
_MAX_CACHE_HOURS = 366 * 24


def build_catalogue(tables: Mapping[str, SheetTable], version: str, problems: SpreadsheetProblems | None = None) -> Catalogue:
    """Make the catalogue of these tables (one for each sheet). Raises `CatalogueError` with every problem.

    `problems` has what was found when the tables were read; it is raised with the others.
    """
    problems = SpreadsheetProblems() if problems is None else problems
    problems.partial_sheets = partially_read_sheets(tables)
    check_required_cells(((sheet, tables[sheet.name]) for sheet in SHEETS), problems)
    vessels = read_containers(tables["containers"], problems)
    questions = read_questions(tables["questions"], tables["options"], problems)
    codes = _read_contracts(tables["contracts"], problems)
    if not codes and "contracts" not in problems.partial_sheets:  # an empty template must not take the place of what is in force
        source = tables["contracts"].source
        problems.add_to_source(source, Problem(source, "has no contract, so that nobody is offered anything", "add one"))
    items = _build_items(tables, vessels, problems)
    asked = read_question_refs(tables["item_questions"], set(items), questions, problems)
    items = {key: replace(item, question_refs=asked.get(key, ())) for key, item in items.items()}
    times = _read_turnarounds(tables["turnaround"], items, codes, problems)
    offers = _read_contract_items(tables["contract_items"], items, codes, times, problems)
    _check_contracts_have_items(tables["contract_items"], codes, problems)
    contracts = {code: Contract(code, cells.text("name"), offers.get(code, {}), kept) for code, (cells, kept) in codes.items()}
    notices = _read_notices(tables["notices"], items, codes, problems)
    if problems:
        raise CatalogueError(problems.ordered)
    return Catalogue(version, contracts, vessels, questions, notices)


def _build_items(
    tables: Mapping[str, SheetTable], vessels: Mapping[str, Container], problems: SpreadsheetProblems
) -> dict[str, Item]:
    made = [(key, _build_item(key or "", cells)) for key, cells in rows_by_key(tables["items"], "item", problems)]
    items = {key: item for key, item in made if key}
    types = read_specimen_types(tables["specimen_types"], problems)
    options, required = read_requirements(tables["requirements"], set(items), types, vessels, problems)
    return {
        key: replace(item, options=tuple(options.get(key, ())), required=tuple(required.get(key, ())))
        for key, item in items.items()
    }


def _build_item(key: str, cells: RowReader) -> Item:
    return Item(
        id=key,
        caption=cells.text("caption"),
        price=Decimal(0),
        turnaround=Turnaround(Decimal(0)),
        allow_multiple_items=cells.boolean("allow_multiple_items"),
        lab_id=cells.text("lab_id"),
        lab_caption=cells.text("lab_caption"),
        group=cells.text("group"),
        description=cells.text("description"),
        patient_preparation=cells.lines("patient_preparation"),
        multiple_specimen=cells.boolean("multiple_specimen"),
        second_label_pattern=IdentifierPattern(cells.text("second_label")) if cells.text("second_label") else None,
        old_order_pattern=IdentifierPattern(cells.text("old_order")) if cells.text("old_order") else None,
    )


def _read_turnarounds(
    table: SheetTable, items: Mapping[str, Item], contract_codes: Collection[str], problems: SpreadsheetProblems
) -> _TurnaroundsByItem:
    times: dict[tuple[str, str | None], Turnaround] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        item, contract = cells.reference("item", items.keys(), "items"), cells.reference("contract", contract_codes, "contracts")
        hours = cells.number("hours", MAX_HOURS)
        if item is None or (contract is None and (cells.text("contract") or cells.has_unreadable("contract"))):
            continue  # also not the time of every contract
        if (item, contract) in times:
            problems.add(row, "item", f"{item!r} has a time already", "keep one of the two")
        times[item, contract] = Turnaround(hours, cells.text("caption"))
    return times


def _read_contract_items(
    table: SheetTable,
    items: Mapping[str, Item],
    contract_codes: Collection[str],
    turnarounds: _TurnaroundsByItem,
    problems: SpreadsheetProblems,
) -> dict[str, dict[str, Item]]:
    offers: dict[str, dict[str, Item]] = defaultdict(dict)
    for row in table.rows:
        cells = RowReader(row, problems)
        contract, key = cells.reference("contract", contract_codes, "contracts"), cells.reference("item", items.keys(), "items")
        price = cells.number("price")
        if contract is None or key is None:
            continue
        if key in offers[contract]:
            problems.add(row, "item", f"{key!r} is in contract {contract!r} already", "keep one of the two")
        time = turnarounds.get((key, contract)) or turnarounds.get((key, None))
        if time is None and "turnaround" not in problems.partial_sheets:
            problems.add(row, "item", f"{key!r} has no row in the sheet turnaround", "add its time")
        offers[contract][key] = replace(
            items[key],
            price=price,
            caption=cells.text("caption") or items[key].caption,
            turnaround=time or items[key].turnaround,
        )
    return offers


def _read_contracts(table: SheetTable, problems: SpreadsheetProblems) -> dict[str, tuple[RowReader, int | None]]:
    """The rows of the contracts, and how many seconds each allows its clinics to keep the nomenclature."""
    read = [(key, (cells, _cache_seconds(cells))) for key, cells in rows_by_key(table, "contract", problems)]
    return {key: each for key, each in read if key}


def _cache_seconds(cells: RowReader) -> int | None:
    hours = cells.number("cache_hours") if cells.text("cache_hours") else None
    if hours and hours > _MAX_CACHE_HOURS:  # every version that may still be kept by a clinic is kept here too
        cells.problems.add(cells.row, "cache_hours", "is more than a year", "write hours, as in 24")
    return None if hours is None else int(hours * 3600)


def _check_contracts_have_items(
    table: SheetTable, contracts: Mapping[str, tuple[RowReader, int | None]], problems: SpreadsheetProblems
) -> None:
    named = {row.cells.get("contract") for row in table.rows}  # also in a row that has a mistake of its own
    for code, (cells, _) in contracts.items():
        if code not in named and "contract_items" not in problems.partial_sheets:
            problems.add(cells.row, "contract", f"{code!r} offers nothing", "add its rows to the sheet contract_items")


def _read_notices(
    table: SheetTable, items: Mapping[str, Item], contract_codes: Collection[str], problems: SpreadsheetProblems
) -> tuple[Notice, ...]:
    """The notices. Several may hold at once (the gravest is told), but the same one twice is a slip: which was meant to stay?"""
    notices = []
    seen: dict[tuple[object, ...], int] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        item, contract = cells.reference("item", items.keys(), "items"), cells.reference("contract", contract_codes, "contracts")
        status = _read_notice_status(cells)
        if item is None or cells.has_unreadable("contract", "status", "start", "end"):
            continue
        same = (item, cells.text("contract"), type(status), status.period)
        if (before := seen.setdefault(same, row.number)) != row.number:
            what = f"says the same item, contract, status, start and end as row {before}"
            problems.add(row, None, what, "keep one of the two")
        notices.append(Notice(item, status, contract, cells.text("caption")))
    return tuple(notices)


def _read_notice_status(cells: RowReader) -> Stopped | Delayed:
    period = NoticePeriod(cells.date_time("start"), cells.date_time("end"))
    if cells.text("start") and cells.text("end") and period.end - period.start <= timedelta(0):
        cells.problems.add(cells.row, "end", "is not after the start", "write a later moment")
    hours = cells.number("delay_hours", MAX_HOURS)
    if cells.one_of("status", ("stopped", "delayed")) == "stopped":
        return Stopped(period)
    if not cells.text("delay_hours").strip("0.,"):
        cells.problems.add(cells.row, "delay_hours", "is empty or 0, and the status is delayed", "write the hours of the delay")
    return Delayed(period, hours)
