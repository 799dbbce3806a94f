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
from lab_agent.catalogue.cells import MAX_HOURS, RowReader, SpreadsheetProblems, check_required_cells, partially_read_sheets
from lab_agent.catalogue.items import Catalogue, Container, Contract, Item
from lab_agent.catalogue.shapes import IdentifierPattern
from lab_agent.catalogue.sheets import SHEETS, SheetTable
from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped, Turnaround
from lab_agent.errors import CatalogueError, Problem

_TurnaroundsByItem = Mapping[tuple[str, str | None], Turnaround]
_MAX_CACHE_HOURS = 366 * 24


def build_catalogue(tables: Mapping[str, SheetTable], version: str, problems: SpreadsheetProblems | None = None) -> Catalogue:
    """Make the catalogue of these tables (one for each sheet). Raises `CatalogueError` with every problem.

    `problems` has what was found when the tables were read; it is raised with the others.
    """
    problems = SpreadsheetProblems() if problems is None else problems
    problems.partial_sheets = partially_read_sheets(tables)
    check_required_cells(((sheet, tables[sheet.name]) for sheet in SHEETS), problems)
    vessels = parts.read_containers(tables["containers"], problems)
    questions = question_sheets.read_questions(tables["questions"], tables["options"], problems)
    codes = _read_contracts(tables["contracts"], problems)
    if not codes and "contracts" not in problems.partial_sheets:  # an empty template must not take the place of what is in force
        source = tables["contracts"].source
        problems.add_to_source(source, Problem(source, "has no contract, so that nobody is offered anything", "add one"))
    items = _build_items(tables, vessels, problems)
    asked = question_sheets.read_question_refs(tables["item_questions"], set(items), questions, problems)
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
    made = [(key, _build_item(key or "", cells)) for key, cells in parts.rows_by_key(tables["items"], "item", problems)]
    items = {key: item for key, item in made if key}
    types = parts.read_specimen_types(tables["specimen_types"], problems)
    options, required = parts.read_requirements(tables["requirements"], set(items), types, vessels, problems)
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
    read = [(key, (cells, _cache_seconds(cells))) for key, cells in parts.rows_by_key(table, "contract", problems)]
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
