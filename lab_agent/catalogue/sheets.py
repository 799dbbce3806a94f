"""The tables that laboratory staff keep: one sheet each, with these columns.

A sheet is a CSV file of that name (or a sheet of a workbook: the columns are the same). `filled` columns may not be empty.
The sentence of a column is what the documentation and a template show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Holds(Enum):
    """What the cells of a column hold; a spreadsheet program must not take a code for a number, nor a number for a date."""

    TEXT = "text"
    CODE = "code"
    NUMBER = "number"
    YES = "yes or no"
    MOMENT = "date and time"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `words` are the only ones allowed; `refers` is the sheet whose first column defines its codes."""

    name: str
    about: str
    filled: bool = False
    holds: Holds = Holds.TEXT
    words: tuple[str, ...] = ()
    refers: str | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table. `key` names the columns by which people know a row; an `optional` sheet may be left out.

    They tell its rows apart, but for the notices: of one start there may be a stop, and a delay that lasts longer.
    """

    name: str
    about: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row as text; `number` counts as a spreadsheet does, the header being row 1.

    `unread` names the columns whose cell could not be read, which was noted: what they hold is not known, and not empty.
    """

    source: str
    number: int
    cells: Mapping[str, str]
    unread: frozenset[str] = frozenset()

    def where(self, column: str | None = None) -> str:
        """Say where it is, for an error."""
        return f"{self.source} row {self.number}" + (f", column {column}" if column else "")


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one sheet, and the name by which people know it; not `whole` where it is missing or its rows were not read."""

    source: str
    rows: tuple[Row, ...] = ()
    whole: bool = True


_ITEM = Column("item", "item code, as in the sheet items", filled=True, holds=Holds.CODE, refers="items")
_CODE = Column(
    "specimen_code",
    "biomaterial type, a whole number, as in the sheet specimen_types",
    filled=True,
    holds=Holds.CODE,
    refers="specimen_types",
)

SHEETS = (
    Sheet(
        "specimen_types",
        "biomaterial types",
        ("specimen_code",),
        (
            Column("specimen_code", "whole number, without leading zeros", filled=True, holds=Holds.CODE),
            Column("specimen_name", "name", filled=True),
        ),
    ),
    Sheet(
        "containers",
        "tubes and vessels",
        ("container_type",),
        (
            Column("container_type", "code, printed with the barcode", filled=True, holds=Holds.CODE),
            Column("container_name", "short name", filled=True),
            Column("description", "what people look for: cap colour, additive, size", filled=True),
            Column("capacity", "the most it may hold; empty means no limit (a swab, a slide box)", holds=Holds.NUMBER),
            Column("dead_volume", "what stays behind and must be drawn on top; empty means 0", holds=Holds.NUMBER),
            Column("unit", "unit of the volumes, for people; it is never sent"),
            Column("transport", "container_type of the vessel in which it travels", holds=Holds.CODE, refers="containers"),
        ),
    ),
    Sheet(
        "items",
        "tests",
        ("item",),
        (
            Column("item", "item code; the id of the nomenclature", filled=True, holds=Holds.CODE),
            Column("caption", "name", filled=True),
            Column("allow_multiple_items", "yes if one order may hold it more than once", holds=Holds.YES),
            Column("lab_id", "your own code", holds=Holds.CODE),
            Column("lab_caption", "your own name"),
            Column("group", "group of tests"),
            Column("description", "extended description"),
            Column("patient_preparation", "requirements, one per line (or separated by |)"),
            Column("multiple_specimen", "yes if several of its biomaterial types may be chosen at once", holds=Holds.YES),
            Column(
                "second_label",
                "shape of a second barcode, 0 for a digit and X for a letter or digit: 0000-0000",
                holds=Holds.CODE,
            ),
            Column(
                "old_order",
                "shape of the old order number that a follow-up study carries: 00000-XXXXX-00000000",
                holds=Holds.CODE,
            ),
        ),
    ),
    Sheet(
        "requirements",
        "which biomaterial a test takes, how much, and how; one row for each item and type (and body site, and container)",
        ("item", "specimen_code", "bodysite_code", "container_type"),
        (
            _ITEM,
            _CODE,
            Column(
                "role",
                "option: one of the types to choose from; required: always taken",
                filled=True,
                words=("option", "required"),
            ),
            Column("description", "remark for the person who chooses"),
            Column("bodysite_code", "body site, if it matters", holds=Holds.CODE),
            Column("bodysite_name", "name of the body site"),
            Column(
                "container_type", "container, as in the sheet containers; empty means any", holds=Holds.CODE, refers="containers"
            ),
            Column(
                "volume", "volume (or number of pieces) that the test needs, without dead volume", filled=True, holds=Holds.NUMBER
            ),
            Column("method", "collection protocol, sent as it stands", filled=True),
            Column("processing", "storage and transport instructions, one per line (or separated by |)"),
            Column("stability_hours", "how long the specimen keeps", holds=Holds.NUMBER),
            Column("stability", "the sentence that says so; the shortest of a shared tube is sent"),
            Column("own_tube", "yes if it may not share its tube with another test", holds=Holds.YES),
            Column("incompatible_with", "item codes that may not share its tube, separated by spaces", holds=Holds.CODE),
            Column("time_points", "for tolerance tests: minutes = collection protocol, one per line (or separated by |)"),
            Column("supporting_info", "own values that must come back with the specimen, separated by spaces; no commas"),
        ),
    ),
    Sheet(
        "questions",
        "questions and groups of questions, in the order in which they are asked; exactly one group has no parent",
        ("link_id",),
        (
            Column("link_id", "code of the question", filled=True, holds=Holds.CODE),
            Column("parent", "link_id of its group; empty for the top group", holds=Holds.CODE, refers="questions"),
            Column("text", "the question", filled=True),
            Column("type", "group, string or choice", filled=True, words=("group", "string", "choice")),
            Column("repeats", "yes if it may be answered more than once", holds=Holds.YES),
        ),
        optional=True,
    ),
    Sheet(
        "options",
        "the answers of the questions of type choice, in their order",
        ("link_id", "system", "code"),
        (
            Column("link_id", "the question", filled=True, holds=Holds.CODE, refers="questions"),
            Column("system", "address of the code system", filled=True),
            Column("code", "code of the answer", filled=True, holds=Holds.CODE),
        ),
        optional=True,
    ),
    Sheet(
        "item_questions",
        "which test asks which question",
        ("item", "link_id"),
        (
            _ITEM,
            Column("link_id", "the question", filled=True, holds=Holds.CODE, refers="questions"),
            Column("required", "yes if the test needs the answer, no if it is recommended", filled=True, holds=Holds.YES),
        ),
        optional=True,
    ),
    Sheet(
        "contracts",
        "contracts",
        ("contract",),
        (
            Column("contract", "contract code", filled=True, holds=Holds.CODE),
            Column("name", "name, for people; it is never sent", filled=True),
            Column(
                "cache_hours",
                "how long partners may keep the nomenclature; empty means the setting of the installation",
                holds=Holds.NUMBER,
            ),
        ),
    ),
    Sheet(
        "contract_items",
        "what each contract offers, and at which price",
        ("contract", "item"),
        (
            Column("contract", "contract code, as in the sheet contracts", filled=True, holds=Holds.CODE, refers="contracts"),
            _ITEM,
            Column("price", "price, sent with the digits that it has here", filled=True, holds=Holds.NUMBER),
            Column("caption", "own name in this contract; empty means the item's"),
        ),
    ),
    Sheet(
        "turnaround",
        "normal turnaround times",
        ("item", "contract"),
        (
            _ITEM,
            Column("contract", "contract code; empty means every contract", holds=Holds.CODE, refers="contracts"),
            Column("hours", "expected time in hours", filled=True, holds=Holds.NUMBER),
            Column("caption", "sentence for people"),
        ),
    ),
    Sheet(
        "notices",
        "tests that are stopped or delayed for a time",
        ("item", "contract", "start"),
        (
            _ITEM,
            Column("contract", "contract code; empty means every contract", holds=Holds.CODE, refers="contracts"),
            Column("status", "stopped or delayed", filled=True, words=("stopped", "delayed")),
            Column("start", "date and time with offset: 2026-11-20T08:00+03:00", filled=True, holds=Holds.MOMENT),
            Column("end", "date and time with offset", filled=True, holds=Holds.MOMENT),
            Column("delay_hours", "for delayed: hours on top of the normal time", holds=Holds.NUMBER),
            Column("caption", "sentence for people; empty means the usual one"),
        ),
        optional=True,
    ),
)
