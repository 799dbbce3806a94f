"""Tables into a catalogue: items with their requirements and questions, contracts with their items, turnaround and notices.

Everything is checked here, so that a request never meets a contradiction: codes that no sheet defines, keys given twice,
contracts that offer nothing, items without a turnaround. All problems are raised together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from lab_agent.catalogue.model import Catalogue, Container, Contract, Item, Question
from lab_agent.catalogue.spreadsheet.cells import (
    MAX_HOURS,
    RowReader,
    SpreadsheetProblems,
    check_required_cells,
    partially_read_sheets,
    rows_by_key,
)
from lab_agent.catalogue.spreadsheet.question_sheets import read_question_refs, read_questions
from lab_agent.catalogue.spreadsheet.requirement_sheets import read_containers, read_requirements, read_specimen_types
from lab_agent.catalogue.spreadsheet.schema import SHEETS, SheetTable
from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped, Turnaround
from lab_agent.shared.errors import CatalogueError, Problem
from lab_agent.shared.label_pools import IdentifierPattern

_TurnaroundsByItem = Mapping[tuple[str, str | None], Turnaround]
_MAX_CACHE_HOURS = 366 * 24


def build_catalogue(tables: Mapping[str, SheetTable], version: str, problems: SpreadsheetProblems | None = None) -> Catalogue:
    """Make the catalogue of these tables (one for each sheet). Raises `CatalogueError` with every problem.

    `problems` are those of reading the tables; they are raised with the others.
    """
    problems = SpreadsheetProblems() if problems is None else problems
    problems.partial_sheets = partially_read_sheets(tables)
    check_required_cells(((sheet, tables[sheet.name]) for sheet in SHEETS), problems)
    containers = read_containers(tables["containers"], problems)
    questions = read_questions(tables["questions"], tables["options"], problems)
    contracts = _read_contracts(tables, problems)
    items = _build_items(tables, containers, questions, problems)
    turnarounds = _read_turnarounds(tables["turnaround"], items, contracts, problems)
    offers = _read_contract_items(tables["contract_items"], items, contracts, turnarounds, problems)
    contracts = {code: replace(each, items=offers.get(code, {})) for code, each in contracts.items()}
    notices = _read_notices(tables["notices"], items, contracts, problems)
    if problems:
        raise CatalogueError(problems.ordered)
    return Catalogue(version, contracts, containers, questions, notices)


def _read_contracts(tables: Mapping[str, SheetTable], problems: SpreadsheetProblems) -> dict[str, Contract]:
    """The contracts, without their items. None at all is a problem: an empty template must not replace what is in force."""
    source = tables["contracts"].source
    read = [(key, cells, _cache_seconds(cells)) for key, cells in rows_by_key(tables["contracts"], "contract", problems)]
    if not any(key for key, _, _ in read) and "contracts" not in problems.partial_sheets:
        problems.add_to_source(source, Problem(source, "has no contract, so nobody is offered anything", "add one"))
    with_items = {row.cells.get("contract") for row in tables["contract_items"].rows}  # also in a row that has another mistake
    for key, cells, _ in read:
        if key and key not in with_items and "contract_items" not in problems.partial_sheets:
            cells.add_problem("contract", f"{key!r} offers nothing", "add its rows to the sheet contract_items")
    return {key: Contract(key, cells.text("name"), {}, seconds) for key, cells, seconds in read if key}


def _cache_seconds(cells: RowReader) -> int | None:
    hours = cells.number("cache_hours") if cells.text("cache_hours") else None
    if hours and hours > _MAX_CACHE_HOURS:  # every version that a clinic may still cache is stored here as long
        cells.add_problem("cache_hours", "is more than a year", "write hours, as in 24")
    return None if hours is None else int(hours * 3600)


def _build_items(
    tables: Mapping[str, SheetTable],
    containers: Mapping[str, Container],
    questions: Mapping[str, Question],
    problems: SpreadsheetProblems,
) -> dict[str, Item]:
    """The items with their requirements and questions; price and turnaround come with the contract."""
    made = [(key, _build_item(key or "", cells)) for key, cells in rows_by_key(tables["items"], "item", problems)]
    items = {key: item for key, item in made if key}
    types = read_specimen_types(tables["specimen_types"], problems)
    options, required = read_requirements(tables["requirements"], set(items), types, containers, problems)
    refs = read_question_refs(tables["item_questions"], set(items), questions, problems)
    return {
        key: replace(
            item,
            options=tuple(options.get(key, ())),
            required=tuple(required.get(key, ())),
            question_refs=refs.get(key, ()),
        )
        for key, item in items.items()
    }


def _build_item(key: str, cells: RowReader) -> Item:
    second_label, old_order = cells.text("second_label"), cells.text("old_order")
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
        second_label_pattern=IdentifierPattern(second_label) if second_label else None,
        old_order_pattern=IdentifierPattern(old_order) if old_order else None,
    )


def _read_turnarounds(
    table: SheetTable, items: Mapping[str, Item], contract_codes: Collection[str], problems: SpreadsheetProblems
) -> _TurnaroundsByItem:
    turnarounds: dict[tuple[str, str | None], Turnaround] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        item, contract = cells.reference("item", items.keys(), "items"), cells.reference("contract", contract_codes, "contracts")
        hours = cells.number("hours", MAX_HOURS)
        if item is None or (contract is None and (cells.text("contract") or cells.has_unreadable("contract"))):
            continue  # an unknown contract must not make it the time of every contract
        if (item, contract) in turnarounds:
            problems.add(row, "item", f"{item!r} already has a time", "keep one of the two")
        turnarounds[item, contract] = Turnaround(hours, cells.text("caption"))
    return turnarounds


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
            problems.add(row, "item", f"{key!r} is already in contract {contract!r}", "keep one of the two")
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


def _read_notices(
    table: SheetTable, items: Mapping[str, Item], contract_codes: Collection[str], problems: SpreadsheetProblems
) -> tuple[Notice, ...]:
    """The notices. Several may apply at once (the most severe counts), but the same one twice is a slip."""
    notices = []
    seen: dict[tuple[object, ...], int] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        item, contract = cells.reference("item", items.keys(), "items"), cells.reference("contract", contract_codes, "contracts")
        status = _read_notice_status(cells)
        if item is None or cells.has_unreadable("contract", "status", "start", "end"):
            continue
        key = (item, cells.text("contract"), type(status), status.period)
        if (before := seen.setdefault(key, row.number)) != row.number:
            what = f"has the same item, contract, status, start and end as row {before}"
            problems.add(row, None, what, "keep one of the two")
        notices.append(Notice(item, status, contract, cells.text("caption")))
    return tuple(notices)


def _read_notice_status(cells: RowReader) -> Stopped | Delayed:
    period = NoticePeriod(cells.date_time("start"), cells.date_time("end"))
    if cells.text("start") and cells.text("end") and period.end - period.start <= timedelta(0):
        cells.add_problem("end", "is not after the start", "write a later time")
    hours = cells.number("delay_hours", MAX_HOURS)
    if cells.one_of("status", ("stopped", "delayed")) == "stopped":
        return Stopped(period)
    if not cells.text("delay_hours").strip("0.,"):
        cells.add_problem("delay_hours", "is empty or 0, and the status is delayed", "write the hours of the delay")
    return Delayed(period, hours)
