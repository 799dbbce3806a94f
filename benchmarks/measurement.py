"""What is measured: a number with its unit and, where there is one, its aim."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

__all__ = ["Measurement", "RunOptions", "median"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How long the benchmarks may take: `quick` is the short form, `large` adds what takes many minutes."""

    quick: bool = False
    large: bool = False

    def choose(self, quick: int, full: int) -> int:
        """A number for the short form, or for the full one."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number. `aim` is a bound that it should keep: at least, or at most."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def aim(self) -> str:
        """The bound for people; empty if there is none."""
        if self.at_least is not None:
            return f"≥ {format_number(self.at_least)}"
        return "" if self.at_most is None else f"≤ {format_number(self.at_most)}"

    @property
    def outcome(self) -> Literal["reached", "missed", ""]:
        """Whether the aim is reached; empty without one."""
        if self.at_least is None and self.at_most is None:
            return ""
        enough = self.at_least is None or self.value >= self.at_least
        return "reached" if enough and (self.at_most is None or self.value <= self.at_most) else "missed"


def format_number(value: float) -> str:
    """A number with as many digits as say something."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
