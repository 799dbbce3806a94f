"""A result value as laboratory systems write it in plain text, read alike for every adapter: a number, a text, or a refusal.

Digits stay as written: `1.20` never becomes anything but `1.20`. A unit is never lost: it goes with the number, or into the text
of any other amount. What may be read in two ways is refused with what to do, since a wrong value is worse than none. A text from
which something had to be removed is never a number. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType

COMPARATORS = MappingProxyType(
    {
        "<": "<", ">": ">", "=": None,
        **dict.fromkeys(("<=", "=<", "≤", "⩽", "≦"), "<="),
        **dict.fromkeys((">=", "=>", "≥", "⩾", "≧"), ">="),
    }
)  # fmt: skip
"""Each spelling of a comparator, and how FHIR has it; equality has none."""
_SIGNS = "<>=≤⩽≦≥⩾≧"
_FIXED_SPACES = "\xa0\u2007\u2009\u202f"
"""Spaces that hold a number together: no-break, figure, thin and narrow ones."""
BLANKS = f" \t\r\n{_FIXED_SPACES}"
"""What may stand around a value; Python's `strip` also takes control characters, and with them a dash of another code page."""
_LINE_END = re.compile("\r\n?|[\n\x0b\x0c\x1e\x85\u2028\u2029]")
_NO_BREAK_SPACE = re.compile("[\xa0\u2007\u202f]")
_REMOVED = "\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u2060\ufeff\ufffe\uffff"
_UNSEEN = f"[{_REMOVED}\xad\u061c\u180e\u200c-\u200f\u202a-\u202e\u2061-\u206f]"
"""Characters that nobody sees; some of them (soft hyphen, direction marks) may stay in a text."""
_INVISIBLE = re.compile(f"[{_REMOVED}]")
_INVISIBLE_AT_DIGITS = re.compile(rf"(?<=[\d.,{_SIGNS}+−-])[{_REMOVED}]+(?=[\d.,])")
_UNSEEN_CHARACTER = re.compile(_UNSEEN)
_UNSEEN_IN_NUMBER = re.compile(rf"[\d.,{_SIGNS}+−-][{BLANKS}]*{_UNSEEN}+[{BLANKS}]*[\d.,]")

_HEAD = rf"(?P<sign>[{_SIGNS}]{{0,2}})[{BLANKS}]*(?P<minus>[+−-]?)"
_EXPONENT = r"(?P<exponent>[eE][+-]?\d{1,3})?"
_POINT_NUMBER = re.compile(
    rf"{_HEAD}(?:(?P<plain>\d+(?:\.\d+)?|\.\d+){_EXPONENT}"
    rf"|(?P<grouped>[1-9]\d{{0,2}}(?P<mark>[{_FIXED_SPACES}'’])\d{{3}}(?:(?P=mark)\d{{3}})*(?:\.\d+)?))",
    re.ASCII,
)
_COMMA_NUMBER = re.compile(
    rf"{_HEAD}(?:(?P<plain>\d+(?:[.,]\d+)?|[.,]\d+){_EXPONENT}"
    rf"|(?P<grouped>[1-9]\d{{0,2}}(?:(?P<mark>[.{_FIXED_SPACES}'’])\d{{3}}(?:(?P=mark)\d{{3}})*(?:,\d+)?|(?: \d{{3}})+,\d+)))",
    re.ASCII,
)
_THOUSANDS_OR_MORE_THAN_ONE = re.compile(r"[1-9]\d{0,2}\.\d{3}", re.ASCII)
_DIGITS_APART = re.compile(rf"{_HEAD}(?P<digits>[.,]?\d[\d.,'’{BLANKS}]*){_EXPONENT}", re.ASCII)
_ENDS_IN_POINT = re.compile(r"\d+\.", re.ASCII)
_AMOUNT = re.compile(rf"[{_SIGNS}~≈±+−-]*\s*\d")
_COMMA_AMONG_DIGITS = re.compile(rf"[{_SIGNS}]{{0,2}}\s*[+−-]?(\d+),(\d+)", re.ASCII)
_COMMA_AND_POINT = re.compile(r"\d,\d{3}(?:,\d{3})*\.\d+", re.ASCII)

_SPREADSHEET_ERROR = re.compile(
    r"#(?:DIV/0!|N/A|NAME\?|NULL!|NUM!|REF!|VALUE!|SPILL!|CALC!|BEZUG!|WERT!|ZAHL!|NV|ДЕЛ/0!|Н/Д|ИМЯ\?|ПУСТО!|ЧИСЛО!|ССЫЛКА!|ЗНАЧ!|#+)"
    r"|Err:\d{3}",
    re.IGNORECASE,
)
"""What Excel (in English, German and Russian) and LibreOffice write for a formula without a value, or a column too narrow."""
_MONTH = (
    r"(?:jan(?:uary|uar)?|jän(?:ner)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz?|mrz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?"
    r"|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?"
    r"|янв(?:ар[ья])?|февр?(?:ал[ья])?|март?а?|апр(?:ел[ья])?|ма[йя]|июн[ья]?|июл[ья]?|авг(?:уста?)?|сент?(?:ябр[ья])?"
    r"|окт(?:ябр[ья])?|нояб?(?:р[ья])?|дек(?:абр[ья])?)\.?"
)
_DAY, _MONTH_NUMBER, _YEAR = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])", r"(?:(?:18|19|20|21)\d\d|\d\d)"
_CLOCK = r"\d{1,2}:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?:\s?[ap]\.?m\.?)?"
_DATE = re.compile(
    rf"(?:\d{{4}}(?P<one>[-./]){_MONTH_NUMBER}(?P=one){_DAY}"
    rf"|{_DAY}(?P<two>[-./]){_MONTH_NUMBER}(?P=two){_YEAR}|{_MONTH_NUMBER}(?P<three>[-./]){_DAY}(?P=three){_YEAR}"
    rf"|{_DAY}\.{_MONTH_NUMBER}\.|0[1-9][./](?:19|20)\d\d"
    rf"|{_DAY}[\s./-]{{1,2}}{_MONTH}(?:[\s./-]{{1,2}}{_YEAR})?|{_MONTH}[\s./'-]{{1,2}}(?:\d|{_YEAR}))"
    rf"(?:\s?г\.?)?(?:[\sT,]{{1,2}}{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
"""Dates, and the day-month forms that spreadsheets in English, German and Russian make of `3-5` or `1.2`."""
_TIME = re.compile(r"(?:(?:[01]?\d|2[0-4]):[0-5]\d|\d+:[0-5]\d:[0-5]\d(?:[.,]\d+)?)(?:\s?[ap]\.?m\.?)?", re.IGNORECASE)
_TITRE = re.compile(r"1:[1-9]\d*", re.ASCII)


class Declared(StrEnum):
    """The form that the laboratory system says a value has: NM, a text (ST), or nothing, as in a table."""

    NUMBER = "number"
    TEXT = "text"
    NOTHING = "nothing"


class ValueFault(StrEnum):
    """A reason for which a value cannot be read for certain."""

    DECIMAL_COMMA = "decimal_comma"
    THOUSANDS_POINT = "thousands_point"
    DIGITS_APART = "digits_apart"
    NOT_A_NUMBER = "not_a_number"
    COMPARATOR = "comparator"
    INVISIBLE = "invisible"
    SPREADSHEET_ERROR = "spreadsheet_error"
    DATE = "date"
    TIME = "time"
    ABOUT = "about"


_WORDS = MappingProxyType(
    {
        ValueFault.DECIMAL_COMMA: (
            "has an invalid number with a comma in it",
            "set decimal_comma if it is a decimal comma; else write the number without separators of thousands",
        ),
        ValueFault.THOUSANDS_POINT: (
            "has a point before three digits, which may mean thousands or decimals where numbers have a decimal comma",
            "write it with a decimal comma, or without a separator of thousands",
        ),
        ValueFault.DIGITS_APART: (
            "has an invalid number: digits with something between them, which may be one number or several",
            "write one number without blanks or separators of thousands, or a range with its dash",
        ),
        ValueFault.NOT_A_NUMBER: ("has an invalid number", "write a number; a text is declared as one (value_type, OBX-2)"),
        ValueFault.COMPARATOR: (
            "has a comparator that does not fit it",
            "write the comparator once, and beside a number",
        ),
        ValueFault.INVISIBLE: (
            "has a character beside its digits that nobody can see, such as a dash of another code page",
            "correct the encoding, or write the value again without it",
        ),
        ValueFault.SPREADSHEET_ERROR: ("is an error of the spreadsheet", "mend the formula, and write the value itself"),
        ValueFault.DATE: (
            "is a date where a value belongs, as a spreadsheet makes of 3-5 or 1.2",
            "format the column as text and write the value again; if a date is meant, declare it (value_type, or OBX-2)",
        ),
        ValueFault.TIME: (
            "is a time of day where a value belongs, as a spreadsheet makes of a titre (1:40)",
            "format the column as text and write the value again; if a time is meant, declare it (value_type, or OBX-2)",
        ),
        ValueFault.ABOUT: (
            "begins with ~, which parts two values here: a value that is only about right would become exact",
            r"have the laboratory system write \R\ for it, or the word in front of the number",
        ),
    }
)  # fmt: skip


class UnreadableValueError(ValueError):
    """A value that must not be guessed; `what` and `hint` say why without quoting more of it than a spreadsheet's error."""

    def __init__(self, fault: ValueFault, error_code: str = "") -> None:
        self.fault = fault
        what, self.hint = _WORDS[fault]
        self.what = f"is {error_code}, {what.removeprefix('is ')}" if error_code else what
        super().__init__(f"{self.what}: {self.hint}")


@dataclass(frozen=True, slots=True)
class Number:
    """A number with its digits as written. `comparator` is one of < <= >= >."""

    value: Decimal
    comparator: str | None = None


@dataclass(frozen=True, slots=True)
class ValueRules:
    """How a laboratory system writes values. `numeric_text`: a text that is a number and has a unit is one."""

    decimal_comma: bool = False
    numeric_text: bool = True


def read_value(text: str, unit: str | None, rules: ValueRules, declared: Declared) -> Number | str:
    """Read a value: a number, whose unit is `unit`, or a text that has the unit already if it is an amount.

    A declared text without a unit stays a text, whatever it looks like. Raises `UnreadableValueError`.
    """
    if declared is not Declared.TEXT or unit:
        check_spreadsheet(text, unit)
        if declared is not Declared.TEXT or rules.numeric_text:
            number = read_number(text, rules)
            if number is not None and not _is_grade(text):
                return number
    return add_unit(read_text(text), unit)


def read_number(text: str, rules: ValueRules) -> Number | None:
    """Read a number with its comparator; None if it is none. Raises `UnreadableValueError` if nobody can say which one."""
    text = text.strip(BLANKS)
    if _UNSEEN_CHARACTER.search(text):
        if _DIGITS_APART.fullmatch(_UNSEEN_CHARACTER.sub("", text)):
            raise UnreadableValueError(ValueFault.INVISIBLE)
        return None
    found = (_COMMA_NUMBER if rules.decimal_comma else _POINT_NUMBER).fullmatch(text)
    digits = found and (found["plain"] or found["grouped"])
    if found and rules.decimal_comma and _THOUSANDS_OR_MORE_THAN_ONE.fullmatch(digits or ""):
        raise UnreadableValueError(ValueFault.THOUSANDS_POINT)
    sign = found["sign"] if found else ""
    if found and digits and (not sign or sign in COMPARATORS):
        return Number(_to_decimal(found, digits), COMPARATORS.get(sign))
    if fault := _number_fault(text, rules):
        raise UnreadableValueError(fault)
    return None


def _to_decimal(found: re.Match[str], digits: str) -> Decimal:
    if found["grouped"]:
        digits = digits.replace(" ", "").replace(found["mark"] or " ", "")
    minus = "-" if found["minus"] in {"-", "−"} else ""
    return Decimal(f"{minus}{digits.replace(',', '.')}{found['exponent'] or ''}")


def _number_fault(text: str, rules: ValueRules) -> ValueFault | None:
    """Why a text of nothing but digits and separators is no number."""
    found = _DIGITS_APART.fullmatch(text)
    if found is None or _ENDS_IN_POINT.fullmatch(found["digits"]) or found["digits"].isdecimal():
        return None
    return ValueFault.DECIMAL_COMMA if "," in text and not rules.decimal_comma else ValueFault.DIGITS_APART


def _is_grade(text: str) -> bool:
    """Whether a plus stands before a whole number: a grade (`+1`), which must not become the number."""
    return text.strip(BLANKS).startswith("+") and not re.search("[.,]", text)


def is_amount(text: str) -> bool:
    """Whether a line of a longer text begins with an amount."""
    return _AMOUNT.match(text) is not None


def add_unit(text: str, unit: str | None) -> str:
    """Give an amount that is no number with its unit, unless it says it itself: `5-10 /HPF`, `1:40 titre`, `negative`."""
    has_digit = any(map(str.isnumeric, text))
    return f"{text} {unit}" if unit and has_digit and not _says_unit(text, unit) else text


def _says_unit(text: str, unit: str) -> bool:
    word = r"\s*".join(map(re.escape, "".join(unit.split())))
    is_letter = len(unit) == 1 and unit.isalpha()  # a unit of one letter may also be a flag: `12.5 H`
    return re.search(rf"(?<![^\W\d_]){word}(?!\w)", text, re.NOFLAG if is_letter else re.IGNORECASE) is not None


def read_text(text: str) -> str:
    """Read a text that may hold numbers. Raises `UnreadableValueError` where two parts of one would come together."""
    if _UNSEEN_CHARACTER.search(text) and _UNSEEN_IN_NUMBER.search(text):
        raise UnreadableValueError(ValueFault.INVISIBLE)
    return readable_text(text)


def readable_text(text: str) -> str:
    """Give a text without what nobody can read: line ends become LF, no-break spaces blanks, other control characters go.

    Between digits something was meant, such as a dash of another code page: a replacement character keeps them apart.
    FHIR's string allows no control character but tab, LF and CR (STU3, Data Types).
    """
    if text.replace("\n", "").isprintable():
        return text.strip()
    lines = _NO_BREAK_SPACE.sub(" ", _LINE_END.sub("\n", text))
    return _INVISIBLE.sub("", _INVISIBLE_AT_DIGITS.sub("\ufffd", lines)).strip()


def has_invisible(text: str) -> bool:
    """Whether a text holds a character that `readable_text` removes."""
    return _INVISIBLE.search(text) is not None


def check_spreadsheet(text: str, unit: str | None = None) -> None:
    """Raise `UnreadableValueError` for what a spreadsheet did to a value: an error in its place, a date or a time of day.

    A titre such as `1:40` is no time; `01:40` is what a spreadsheet makes of it.
    """
    text = text.strip(BLANKS)
    if _SPREADSHEET_ERROR.fullmatch(text):
        raise UnreadableValueError(ValueFault.SPREADSHEET_ERROR, text)
    if _DATE.fullmatch(text):
        raise UnreadableValueError(ValueFault.DATE)
    is_duration = unit is not None and ":" in unit  # such as min:s
    if _TIME.fullmatch(text) and not is_duration and not _TITRE.fullmatch(text):
        raise UnreadableValueError(ValueFault.TIME)


def suggests_decimal_comma(texts: Iterable[str]) -> bool | None:
    """Whether numbers are written with a decimal comma; None where it may as well group thousands, and a person must say."""
    texts = list(texts)
    found = [match for text in texts if (match := _COMMA_AMONG_DIGITS.fullmatch(text.strip(BLANKS)))]
    certain = any(len(one[2]) != 3 or one[1] == "0" or (len(one[1]) > 3 and one[1][0] != "0") for one in found)
    if certain and not any(map(_COMMA_AND_POINT.search, texts)):
        return True
    return None if found else False
