"""Sheets into a catalogue: items with their parts, contracts with their items, turnaround and notices.

Everything is checked here, so that a request never meets a contradiction: codes that no sheet defines, keys given twice,
items that no contract offers a price for, conflicting questions. All problems are raised together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from lab_agent.catalogue import parts, question_sheets
from lab_agent.catalogue.cells import LONGEST_HOURS, Cells, Problems, check_filled, partly_read
from lab_agent.catalogue.items import Catalogue, Container, Contract, Item
from lab_agent.catalogue.shapes import Shape
from lab_agent.catalogue.sheets import SHEETS, Table
from lab_agent.catalogue.turnaround import Delayed, Notice, Period, Stopped, Turnaround
from lab_agent.errors import CatalogueError, Problem

_Times = Mapping[tuple[str, str | None], Turnaround]
_LONGEST_CACHE = 366 * 24


def assemble(tables: Mapping[str, Table], version: str, problems: Problems | None = None) -> Catalogue:
    """Make the catalogue of these tables (one for each sheet). Raises `CatalogueError` with every problem.

    `problems` has what was found when the tables were read; it is raised with the others.
    """
    problems = Problems() if problems is None else problems
    problems.partial = partly_read(tables)
    check_filled(((sheet, tables[sheet.name]) for sheet in SHEETS), problems)
    vessels = parts.containers(tables["containers"], problems)
    questions = question_sheets.questions(tables["questions"], tables["options"], problems)
    codes = _codes(tables["contracts"], problems)
    if not codes and "contracts" not in problems.partial:  # an empty template must not take the place of what is in force
        source = tables["contracts"].source
        problems.note(source, Problem(source, "has no contract, so that nobody is offered anything", "add one"))
    items = _items(tables, vessels, problems)
    asked = question_sheets.asked(tables["item_questions"], set(items), questions, problems)
    items = {key: replace(item, asked=asked.get(key, ())) for key, item in items.items()}
    times = _times(tables["turnaround"], items, codes, problems)
    offers = _offers(tables["contract_items"], items, codes, times, problems)
    _check_offered(tables["contract_items"], codes, problems)
    contracts = {code: Contract(code, cells.text("name"), offers.get(code, {}), kept) for code, (cells, kept) in codes.items()}
    notices = _notices(tables["notices"], items, codes, problems)
    if problems:
        raise CatalogueError(problems.found)
    return Catalogue(version, contracts, vessels, questions, notices)


def _items(tables: Mapping[str, Table], vessels: Mapping[str, Container], problems: Problems) -> dict[str, Item]:
    made = [(key, _item(key or "", cells)) for key, cells in parts.by_key(tables["items"], "item", problems)]
    items = {key: item for key, item in made if key}
    types = parts.specimen_types(tables["specimen_types"], problems)
    options, required = parts.requirements(tables["requirements"], set(items), types, vessels, problems)
    return {
        key: replace(item, options=tuple(options.get(key, ())), required=tuple(required.get(key, ())))
        for key, item in items.items()
    }


def _item(key: str, cells: Cells) -> Item:
    return Item(
        id=key,
        caption=cells.text("caption"),
        price=Decimal(0),
        turnaround=Turnaround(Decimal(0)),
        allow_multiple_items=cells.yes("allow_multiple_items"),
        lab_id=cells.text("lab_id"),
        lab_caption=cells.text("lab_caption"),
        group=cells.text("group"),
        description=cells.text("description"),
        patient_preparation=cells.lines("patient_preparation"),
        multiple_specimen=cells.yes("multiple_specimen"),
        second_label=Shape(cells.text("second_label")) if cells.text("second_label") else None,
        old_order=Shape(cells.text("old_order")) if cells.text("old_order") else None,
    )


def _times(table: Table, items: Mapping[str, Item], codes: Collection[str], problems: Problems) -> _Times:
    times: dict[tuple[str, str | None], Turnaround] = {}
    for row in table.rows:
        cells = Cells(row, problems)
        item, contract = cells.known("item", items.keys(), "items"), cells.known("contract", codes, "contracts")
        hours = cells.number("hours", LONGEST_HOURS)
        if item is None or (contract is None and (cells.text("contract") or cells.unread("contract"))):
            continue  # also not the time of every contract
        if (item, contract) in times:
            problems.add(row, "item", f"{item!r} has a time already", "keep one of the two")
        times[item, contract] = Turnaround(hours, cells.text("caption"))
    return times


def _offers(
    table: Table, items: Mapping[str, Item], codes: Collection[str], times: _Times, problems: Problems
) -> dict[str, dict[str, Item]]:
    offers: dict[str, dict[str, Item]] = defaultdict(dict)
    for row in table.rows:
        cells = Cells(row, problems)
        contract, key = cells.known("contract", codes, "contracts"), cells.known("item", items.keys(), "items")
        price = cells.number("price")
        if contract is None or key is None:
            continue
        if key in offers[contract]:
            problems.add(row, "item", f"{key!r} is in contract {contract!r} already", "keep one of the two")
        time = times.get((key, contract)) or times.get((key, None))
        if time is None and "turnaround" not in problems.partial:
            problems.add(row, "item", f"{key!r} has no row in the sheet turnaround", "add its time")
        offers[contract][key] = replace(
            items[key],
            price=price,
            caption=cells.text("caption") or items[key].caption,
            turnaround=time or items[key].turnaround,
        )
    return offers


def _codes(table: Table, problems: Problems) -> dict[str, tuple[Cells, int | None]]:
    """The rows of the contracts, and how many seconds each allows its clinics to keep the nomenclature."""
    read = [(key, (cells, _cache_seconds(cells))) for key, cells in parts.by_key(table, "contract", problems)]
    return {key: each for key, each in read if key}


def _cache_seconds(cells: Cells) -> int | None:
    hours = cells.number("cache_hours") if cells.text("cache_hours") else None
    if hours and hours > _LONGEST_CACHE:  # every version that may still be kept by a clinic is kept here too
        cells.problems.add(cells.row, "cache_hours", "is more than a year", "write hours, as in 24")
    return None if hours is None else int(hours * 3600)


def _check_offered(table: Table, codes: Mapping[str, tuple[Cells, int | None]], problems: Problems) -> None:
    named = {row.cells.get("contract") for row in table.rows}  # also in a row that has a mistake of its own
    for code, (cells, _) in codes.items():
        if code not in named and "contract_items" not in problems.partial:
            problems.add(cells.row, "contract", f"{code!r} offers nothing", "add its rows to the sheet contract_items")


def _notices(table: Table, items: Mapping[str, Item], codes: Collection[str], problems: Problems) -> tuple[Notice, ...]:
    """The notices. Several may hold at once (the gravest is told), but the same one twice is a slip: which was meant to stay?"""
    notices = []
    seen: dict[tuple[object, ...], int] = {}
    for row in table.rows:
        cells = Cells(row, problems)
        item, contract = cells.known("item", items.keys(), "items"), cells.known("contract", codes, "contracts")
        status = _status(cells)
        if item is None or cells.unread("contract", "status", "start", "end"):
            continue
        same = (item, cells.text("contract"), type(status), status.period)
        if (before := seen.setdefault(same, row.number)) != row.number:
            what = f"says the same item, contract, status, start and end as row {before}"
            problems.add(row, None, what, "keep one of the two")
        notices.append(Notice(item, status, contract, cells.text("caption")))
    return tuple(notices)


def _status(cells: Cells) -> Stopped | Delayed:
    period = Period(cells.moment("start"), cells.moment("end"))
    if cells.text("start") and cells.text("end") and period.end - period.start <= timedelta(0):
        cells.problems.add(cells.row, "end", "is not after the start", "write a later moment")
    hours = cells.number("delay_hours", LONGEST_HOURS)
    if cells.one_of("status", ("stopped", "delayed")) == "stopped":
        return Stopped(period)
    if not cells.text("delay_hours").strip("0.,"):
        cells.problems.add(cells.row, "delay_hours", "is empty or 0, and the status is delayed", "write the hours of the delay")
    return Delayed(period, hours)
