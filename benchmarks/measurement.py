"""What is measured: a number with its unit and, where there is one, its aim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

_SHOWN_SHARES = 6


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


@dataclass(frozen=True, slots=True)
class Usage:
    """What a number of orders cost: seconds of CPU, and of time."""

    cpu: float
    elapsed: float
    orders: int

    @property
    def cpu_per_order(self) -> float:
        """Milliseconds of CPU."""
        return 1000 * self.cpu / self.orders

    @property
    def orders_per_second(self) -> float:
        """By the clock on the wall."""
        return self.orders / self.elapsed


@dataclass(frozen=True, slots=True)
class Counts:
    """What an order asks of the database and of the service, on average."""

    statements: float
    transactions: float
    rollbacks: float
    reads: float
    """Transactions that only read, without the write lock."""
    requests: float


Run = Callable[[], Usage]


def format_number(value: float) -> str:
    """A number with as many digits as say something."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def measure_ratio(what: str, run_floor: Run, run_ours: Run, *, rounds: int) -> list[Measurement]:
    """Run the floor (`what` it is) and ours in pairs, and compare their CPU."""
    pairs = [(run_floor(), run_ours()) for _ in range(rounds)]
    ours = [our for _, our in pairs]
    return [
        Measurement(name="CPU", value=median(each.cpu_per_order for each in ours), unit="ms/order"),
        Measurement(name=f"floor: {what}", value=median(floor.cpu_per_order for floor, _ in pairs), unit="ms/order"),
        Measurement(
            name="floor / ours", value=median(floor.cpu / our.cpu for floor, our in pairs), unit="", at_least=0.3, note="by CPU"
        ),
        Measurement(name="throughput", value=median(each.orders_per_second for each in ours), unit="orders/s"),
    ]


def measure_counts(counts: Counts, *, most_statements: float, most_transactions: float) -> list[Measurement]:
    """What an order asks of the database and of the service."""
    return [
        Measurement(name="statements", value=counts.statements, unit="per order", at_most=most_statements),
        Measurement(name="transactions", value=counts.transactions, unit="per order", at_most=most_transactions),
        Measurement(name="rolled back", value=counts.rollbacks, unit="per order", note="of the transactions"),
        Measurement(name="read-only transactions", value=counts.reads, unit="per order", note="beside them"),
        Measurement(name="requests", value=counts.requests, unit="per order"),
    ]


def measure_shares(shares: Mapping[str, float]) -> list[Measurement]:
    """Where the CPU goes: the packages that have most of it, in percent."""
    largest = sorted(shares.items(), key=lambda each: each[1], reverse=True)[:_SHOWN_SHARES]
    return [Measurement(name=f"share of {name}", value=100 * share, unit="% of CPU") for name, share in largest]
