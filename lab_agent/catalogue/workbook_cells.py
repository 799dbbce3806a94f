"""What a cell of a workbook says, as text: what a person sees there, and nothing that a spreadsheet program made of it.

A number has the 15 digits that every spreadsheet program shows of it: what a formula left behind them (451.00000000000006) is
how the machine counts, and nobody has seen it. It is written as its format shows it (480.00, 042.036), unless that would lose
digits. What can no longer be told from what was meant is a problem: a code that became a decimal number or a date, a formula
without a value.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

from lab_agent.catalogue.cell_text import CellError, normalize_text
from lab_agent.catalogue.sheets import ColumnType

_NUMBER_FORMAT = re.compile(r"(?:#,##)?(#{0,30}0{0,30})(?:\.(0{1,30}))?")
_FORMAT_DECORATION = re.compile(r'"[^"]*"|\[\$[^\]]*\]|\[[A-Za-z]+\]|\\.|_.|\*.|[\s$€£¥₽₴₸₾֏]')
"""What a format shows beside the digits: a text, a currency with its language, a colour, a blank as wide as another character."""
_ESCAPED_CHARACTER = re.compile(r"_x([0-9A-Fa-f]{4})_")
_EXACT_CONTEXT = Context(prec=100)  # the digits of a number that is rounded here, and of the longest format
_MAX_DIGITS = 40


def cell_to_text(value: Any, data_type: str, number_format: str, column_type: ColumnType) -> str | CellError:
    """Give the text of a cell. `kind` is the data type that the file gives it: e an error, f a formula, ? an unknown format."""
    if isinstance(value, str) and data_type != "e":
        return normalize_text(_ESCAPED_CHARACTER.sub(lambda found: chr(int(found[1], 16)), value) if "_x" in value else value)
    if why := _unreadable_value(value, data_type):
        return why
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, date | time):
        return _date_to_text(value, column_type)
    if isinstance(value, int | float | Decimal):
        return _number_to_text(Decimal(format(value, ".15g") if isinstance(value, float) else value), number_format, column_type)
    return normalize_text(str("" if value is None else value))


def _unreadable_value(value: Any, data_type: str) -> CellError | None:
    if value is None and data_type == "f":
        return CellError("holds a formula without a value", "open the file in a spreadsheet program and save it")
    if data_type == "e":
        return CellError(f"holds the error {value}", "mend the formula, or write the value")
    if data_type == "?":
        return CellError("has a format that the workbook does not define", "format the cell again")
    if isinstance(value, timedelta):
        return CellError("holds a duration", "format the column as text, and write the cell again")
    return None


def _date_to_text(value: date | time, column_type: ColumnType) -> str | CellError:
    """A date that is meant as one has no offset in a workbook: it is a time of this machine's zone."""
    if column_type is not ColumnType.DATE_TIME:
        return CellError("holds a date", "format the column as text, and write the cell again")
    if isinstance(value, time):
        return CellError("holds a time without a date", "write it as 2026-11-20T08:00+03:00")
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # noqa: DTZ001 - made aware below
    try:
        return moment.astimezone().isoformat(timespec="minutes")
    except (
        OverflowError,
        ValueError,
        OSError,
    ):  # the first and the last days of the calendar, and what this machine does not know
        return CellError(f"holds the year {value.year}", "write it as 2026-11-20T08:00+03:00")


def _number_to_text(value: Decimal, number_format: str, column_type: ColumnType) -> str | CellError:
    if not value.is_finite() or value.adjusted() > _MAX_DIGITS or value.adjusted() < -_MAX_DIGITS:
        return CellError("holds a number beyond all bounds", "write the number")
    value = value or Decimal(0)  # -0 is 0
    seen = _apply_number_format(
        value, _FORMAT_DECORATION.sub("", number_format) if column_type is ColumnType.NUMBER else number_format
    )
    if seen is not None:
        return seen
    plain = value.to_integral_value() if value == value.to_integral_value() else value
    if column_type is ColumnType.CODE and plain.as_tuple().exponent != 0:
        what = f"holds the number {format(plain, 'f')}, and a code may have had zeros around it"
        return CellError(what, "format the column as text, and write the code again")
    return format(plain, "f")


def _apply_number_format(value: Decimal, number_format: str) -> str | None:
    """The number as its format shows it; None where the format is another kind, or shows fewer digits than there are."""
    found = _NUMBER_FORMAT.fullmatch(number_format.split(";", maxsplit=1)[0])
    if not found or value < 0:
        return None
    digits, places = found[1].count("0"), len(found[2] or "")
    rounded = value.quantize(Decimal((0, (1,), -places)), context=_EXACT_CONTEXT)
    if rounded != value:
        return None
    whole, _, rest = format(rounded, "f").partition(".")
    return whole.zfill(digits) + (f".{rest}" if rest else "")
