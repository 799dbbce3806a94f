"""The tables that laboratory staff keep: one sheet each, with these columns.

A sheet is a CSV file of that name, or a sheet of a workbook with the same columns. The description of a column is what
docs/catalogue.md and the template of a workbook show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lab_agent.shared.errors import Cell


class ColumnType(Enum):
    """What the cells of a column hold, so that a spreadsheet program takes no code for a number and no number for a date."""

    TEXT = "text"
    CODE = "code"
    NUMBER = "number"
    YES_NO = "yes or no"
    DATE_TIME = "date and time"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `required` cells may not be empty; `references_sheet` is the sheet whose first column defines its codes."""

    name: str
    description: str
    required: bool = False
    type: ColumnType = ColumnType.TEXT
    allowed_values: tuple[str, ...] = ()
    references_sheet: str | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table. `key` names the columns by which people know a row; an `optional` sheet may be left out.

    The key is unique but for notices: a stop and a longer delay of one test may have the same start.
    """

    name: str
    description: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One row as text; `number` counts as a spreadsheet does, the header being row 1.

    `unreadable_columns` are those whose cell could not be read: what they hold is not known, which is not the same as empty.
    """

    source: str
    number: int
    cells: Mapping[str, str]
    unreadable_columns: frozenset[str] = frozenset()

    def where(self, column: str | None = None) -> str:
        """Say where it is, for an error."""
        return str(self.cell(column))

    def cell(self, column: str | None = None) -> Cell:
        """Its place in the table."""
        return Cell(self.source, self.number, column, self.number)


@dataclass(frozen=True, slots=True)
class SheetTable:
    """The rows of one sheet, and the name by which people know it; not complete where it is missing or could not be read."""

    source: str
    rows: tuple[SheetRow, ...] = ()
    is_complete: bool = True


_ITEM_COLUMN = Column("item", "item code, as in the sheet items", required=True, type=ColumnType.CODE, references_sheet="items")
_SPECIMEN_CODE_COLUMN = Column(
    "specimen_code",
    "biomaterial type, a whole number, as in the sheet specimen_types",
    required=True,
    type=ColumnType.CODE,
    references_sheet="specimen_types",
)

SHEETS = (
    Sheet(
        "specimen_types",
        "biomaterial types",
        ("specimen_code",),
        (
            Column("specimen_code", "whole number, without leading zeros", required=True, type=ColumnType.CODE),
            Column("specimen_name", "name", required=True),
        ),
    ),
    Sheet(
        "containers",
        "tubes and vessels",
        ("container_type",),
        (
            Column("container_type", "code, printed with the barcode", required=True, type=ColumnType.CODE),
            Column("container_name", "short name", required=True),
            Column("description", "what people look for: cap colour, additive, size", required=True),
            Column("capacity", "the most it may hold; empty means no limit (a swab, a slide box)", type=ColumnType.NUMBER),
            Column("dead_volume", "what stays behind and must be drawn on top; empty means 0", type=ColumnType.NUMBER),
            Column("unit", "unit of the volumes, for people; it is never sent"),
            Column(
                "transport",
                "container_type of the vessel in which it travels",
                type=ColumnType.CODE,
                references_sheet="containers",
            ),
        ),
    ),
    Sheet(
        "items",
        "tests",
        ("item",),
        (
            Column("item", "item code; the id of the nomenclature", required=True, type=ColumnType.CODE),
            Column("caption", "name", required=True),
            Column("allow_multiple_items", "yes if one order may hold it more than once", type=ColumnType.YES_NO),
            Column("lab_id", "your own code", type=ColumnType.CODE),
            Column("lab_caption", "your own name"),
            Column("group", "group of tests"),
            Column("description", "extended description"),
            Column("patient_preparation", "requirements, one per line (or separated by |)"),
            Column("multiple_specimen", "yes if several of its biomaterial types may be chosen at once", type=ColumnType.YES_NO),
            Column(
                "second_label",
                "pattern of a second barcode, 0 for a digit and X for a letter or digit: 0000-0000",
                type=ColumnType.CODE,
            ),
            Column(
                "old_order",
                "pattern of the old order number of a follow-up study, where nothing else is ordered: 00000-XXXXX-00000000",
                type=ColumnType.CODE,
            ),
        ),
    ),
    Sheet(
        "requirements",
        "which biomaterial a test takes, how much, and how; one row for each item and type (and body site, and container)",
        ("item", "specimen_code", "bodysite_code", "container_type"),
        (
            _ITEM_COLUMN,
            _SPECIMEN_CODE_COLUMN,
            Column(
                "role",
                "option: one of the types to choose from; required: always taken",
                required=True,
                allowed_values=("option", "required"),
            ),
            Column("description", "remark for the person who chooses"),
            Column("bodysite_code", "body site, if it matters", type=ColumnType.CODE),
            Column("bodysite_name", "name of the body site"),
            Column(
                "container_type",
                "container, as in the sheet containers; empty means any",
                type=ColumnType.CODE,
                references_sheet="containers",
            ),
            Column(
                "volume",
                "volume (or number of pieces) that the test needs, without dead volume",
                required=True,
                type=ColumnType.NUMBER,
            ),
            Column("method", "collection protocol, sent as it stands", required=True),
            Column("processing", "storage and transport instructions, one per line (or separated by |)"),
            Column(
                "stability_hours", "how many hours the specimen keeps; filled together with stability", type=ColumnType.NUMBER
            ),
            Column(
                "stability",
                "the sentence that says so, filled together with stability_hours; the shortest of a shared tube is sent",
            ),
            Column("own_tube", "yes if it may not share its tube with another test", type=ColumnType.YES_NO),
            Column("incompatible_with", "item codes that may not share its tube, separated by spaces", type=ColumnType.CODE),
            Column("time_points", "for tolerance tests: minutes = collection protocol, one per line (or separated by |)"),
            Column("supporting_info", "own values that must come back with the specimen, separated by spaces; no commas"),
        ),
    ),
    Sheet(
        "questions",
        "questions and groups of questions, in the order in which they are asked; exactly one group has no parent",
        ("link_id",),
        (
            Column("link_id", "code of the question", required=True, type=ColumnType.CODE),
            Column("parent", "link_id of its group; empty for the top group", type=ColumnType.CODE, references_sheet="questions"),
            Column("text", "the question", required=True),
            Column("type", "group, string or choice", required=True, allowed_values=("group", "string", "choice")),
            Column("repeats", "yes if it may be answered more than once", type=ColumnType.YES_NO),
        ),
        optional=True,
    ),
    Sheet(
        "options",
        "the answers of the questions of type choice, in their order",
        ("link_id", "system", "code"),
        (
            Column("link_id", "the question", required=True, type=ColumnType.CODE, references_sheet="questions"),
            Column("system", "address of the code system", required=True),
            Column("code", "code of the answer", required=True, type=ColumnType.CODE),
        ),
        optional=True,
    ),
    Sheet(
        "item_questions",
        "which test asks which question",
        ("item", "link_id"),
        (
            _ITEM_COLUMN,
            Column("link_id", "the question", required=True, type=ColumnType.CODE, references_sheet="questions"),
            Column(
                "required", "yes if the test needs the answer, no if it is recommended", required=True, type=ColumnType.YES_NO
            ),
        ),
        optional=True,
    ),
    Sheet(
        "contracts",
        "contracts",
        ("contract",),
        (
            Column("contract", "contract code", required=True, type=ColumnType.CODE),
            Column("name", "name, for people; it is never sent", required=True),
            Column(
                "cache_hours",
                "how long partners may keep the nomenclature; empty means the setting of the installation",
                type=ColumnType.NUMBER,
            ),
        ),
    ),
    Sheet(
        "contract_items",
        "what each contract offers, and at which price",
        ("contract", "item"),
        (
            Column(
                "contract",
                "contract code, as in the sheet contracts",
                required=True,
                type=ColumnType.CODE,
                references_sheet="contracts",
            ),
            _ITEM_COLUMN,
            Column("price", "price, sent with the digits that it has here", required=True, type=ColumnType.NUMBER),
            Column("caption", "own name in this contract; empty means the item's"),
        ),
    ),
    Sheet(
        "turnaround",
        "normal turnaround times",
        ("item", "contract"),
        (
            _ITEM_COLUMN,
            Column("contract", "contract code; empty means every contract", type=ColumnType.CODE, references_sheet="contracts"),
            Column("hours", "expected time in hours", required=True, type=ColumnType.NUMBER),
            Column("caption", "sentence for people"),
        ),
    ),
    Sheet(
        "notices",
        "tests that are stopped or delayed for a time",
        ("item", "contract", "start"),
        (
            _ITEM_COLUMN,
            Column("contract", "contract code; empty means every contract", type=ColumnType.CODE, references_sheet="contracts"),
            Column("status", "stopped or delayed", required=True, allowed_values=("stopped", "delayed")),
            Column("start", "date and time with offset: 2026-11-20T08:00+03:00", required=True, type=ColumnType.DATE_TIME),
            Column("end", "date and time with offset", required=True, type=ColumnType.DATE_TIME),
            Column("delay_hours", "for delayed: hours on top of the normal time", type=ColumnType.NUMBER),
            Column("caption", "sentence for people; empty means the usual one"),
        ),
        optional=True,
    ),
)
