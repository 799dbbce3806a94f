"""Small values that orders and results share, named as FHIR names them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier:
    """A value that names something within a system (an address)."""

    system: str | None = None
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """A code within a system."""

    system: str | None = None
    code: str
    display: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeableConcept:
    """Codings of one meaning, and the words for people."""

    coding: tuple[Coding, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A measured amount; `value` keeps the digits that it came with. `comparator` is one of < <= >= >."""

    value: Decimal
    comparator: str | None = None
    unit: str | None = None
    system: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From `low` to `high`; one of them may be missing."""

    low: Quantity | None = None
    high: Quantity | None = None


LOW_HIGH_HINT = "give low and high so that low is the smaller one"


def is_inverted_range(low: Quantity | None, high: Quantity | None) -> bool:
    """Whether low is the larger one; amounts in different units are not compared."""
    return low is not None and high is not None and (low.code, low.unit) == (high.code, high.unit) and low.value > high.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """`numerator` to `denominator`, such as a titre."""

    numerator: Quantity
    denominator: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledData:
    """A series of samples (FHIR STU3 SampledData): `period` in milliseconds between samples, `data` as decimals and E, U, L."""

    origin: Quantity
    period: Decimal
    dimensions: int
    data: str
    factor: Decimal | None = None
    lower_limit: Decimal | None = None
    upper_limit: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From `start` to `end`; one of them may be missing."""

    start: datetime | None = None
    end: datetime | None = None
