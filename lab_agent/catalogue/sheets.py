"""The tables that laboratory staff keep: one sheet each, with these columns.

A sheet is a CSV file of that name (or a sheet of a workbook: the columns are the same). `filled` columns may not be empty.
The sentence of a column is what the documentation and a template show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    about: str
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table. An `optional` sheet may be left out."""

    name: str
    about: str
    columns: tuple[Column, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row as text; `number` counts as a spreadsheet does, the header being row 1."""

    source: str
    number: int
    cells: Mapping[str, str]

    def where(self, column: str | None = None) -> str:
        """Say where it is, for an error."""
        return f"{self.source} row {self.number}" + (f", column {column}" if column else "")


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one sheet, and the name by which people know it."""

    source: str
    rows: tuple[Row, ...] = ()


_ITEM = Column("item", "item code, as in the sheet items", filled=True)
_CODE = Column("specimen_code", "biomaterial type, a whole number, as in the sheet specimen_types", filled=True)

SHEETS = (
    Sheet(
        "specimen_types",
        "biomaterial types",
        (
            Column("specimen_code", "whole number, without leading zeros", filled=True),
            Column("specimen_name", "name", filled=True),
        ),
    ),
    Sheet(
        "containers",
        "tubes and vessels",
        (
            Column("container_type", "code, printed with the barcode", filled=True),
            Column("container_name", "short name", filled=True),
            Column("description", "what people look for: cap colour, additive, size", filled=True),
            Column("capacity", "the most it may hold; empty means no limit (a swab, a slide box)"),
            Column("dead_volume", "what stays behind and must be drawn on top; empty means 0"),
            Column("unit", "unit of the volumes, for people; it is never sent"),
            Column("transport", "container_type of the vessel in which it travels"),
        ),
    ),
    Sheet(
        "items",
        "tests",
        (
            Column("item", "item code; the id of the nomenclature", filled=True),
            Column("caption", "name", filled=True),
            Column("allow_multiple_items", "yes if one order may hold it more than once"),
            Column("lab_id", "your own code"),
            Column("lab_caption", "your own name"),
            Column("group", "group of tests"),
            Column("description", "extended description"),
            Column("patient_preparation", "requirements, one per line (or separated by |)"),
            Column("multiple_specimen", "yes if several of its biomaterial types may be chosen at once"),
            Column("second_label", "shape of a second barcode, 0 for a digit and X for a letter or digit: 0000-0000"),
            Column("old_order", "shape of the old order number that a follow-up study carries: 00000-XXXXX-00000000"),
        ),
    ),
    Sheet(
        "requirements",
        "which biomaterial a test takes, how much, and how; one row for each item and type (and body site, and container)",
        (
            _ITEM,
            _CODE,
            Column("role", "option: one of the types to choose from; required: always taken", filled=True),
            Column("description", "remark for the person who chooses"),
            Column("bodysite_code", "body site, if it matters"),
            Column("bodysite_name", "name of the body site"),
            Column("container_type", "container, as in the sheet containers; empty means any"),
            Column("volume", "volume (or number of pieces) that the test needs, without dead volume", filled=True),
            Column("method", "collection protocol, sent as it stands", filled=True),
            Column("processing", "storage and transport instructions, one per line (or separated by |)"),
            Column("stability_hours", "how long the specimen keeps"),
            Column("stability", "the sentence that says so; the shortest of a shared tube is sent"),
            Column("own_tube", "yes if it may not share its tube with another test"),
            Column("incompatible_with", "item codes that may not share its tube, separated by spaces"),
            Column("time_points", "for tolerance tests: minutes = collection protocol, one per line (or separated by |)"),
            Column("supporting_info", "own values that must come back with the specimen, separated by spaces; no commas"),
        ),
    ),
    Sheet(
        "questions",
        "questions and groups of questions, in the order in which they are asked; exactly one group has no parent",
        (
            Column("link_id", "code of the question", filled=True),
            Column("parent", "link_id of its group; empty for the top group"),
            Column("text", "the question", filled=True),
            Column("type", "group, string or choice", filled=True),
            Column("repeats", "yes if it may be answered more than once"),
        ),
        optional=True,
    ),
    Sheet(
        "options",
        "the answers of the questions of type choice, in their order",
        (
            Column("link_id", "the question", filled=True),
            Column("system", "address of the code system", filled=True),
            Column("code", "code of the answer", filled=True),
        ),
        optional=True,
    ),
    Sheet(
        "item_questions",
        "which test asks which question",
        (
            _ITEM,
            Column("link_id", "the question", filled=True),
            Column("required", "yes if the test needs the answer, no if it is recommended", filled=True),
        ),
        optional=True,
    ),
    Sheet(
        "contracts",
        "contracts",
        (
            Column("contract", "contract code", filled=True),
            Column("name", "name, for people; it is never sent", filled=True),
            Column("cache_hours", "how long partners may keep the nomenclature; empty means the setting of the installation"),
        ),
    ),
    Sheet(
        "contract_items",
        "what each contract offers, and at which price",
        (
            Column("contract", "contract code, as in the sheet contracts", filled=True),
            _ITEM,
            Column("price", "price, sent with the digits that it has here", filled=True),
            Column("caption", "own name in this contract; empty means the item's"),
        ),
    ),
    Sheet(
        "turnaround",
        "normal turnaround times",
        (
            _ITEM,
            Column("contract", "contract code; empty means every contract"),
            Column("hours", "expected time in hours", filled=True),
            Column("caption", "sentence for people"),
        ),
    ),
    Sheet(
        "notices",
        "tests that are stopped or delayed for a time",
        (
            _ITEM,
            Column("contract", "contract code; empty means every contract"),
            Column("status", "stopped or delayed", filled=True),
            Column("start", "date and time with offset: 2026-11-20T08:00+03:00", filled=True),
            Column("end", "date and time with offset", filled=True),
            Column("delay_hours", "for delayed: hours on top of the normal time"),
            Column("caption", "sentence for people; empty means the usual one"),
        ),
        optional=True,
    ),
)
