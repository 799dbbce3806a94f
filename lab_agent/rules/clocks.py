"""What cannot be decided while our clock and the exchange service's differ."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from lab_agent.rules.context import RuleContext
from lab_agent.rules.rule import Rule, Severity, Violation, rule

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


@rule(
    "order.clocks-differ",
    Severity.HOLD,
    "Specimen: collection",
    "{where}: rule {rule} objects to this by our clock, but our clock and the exchange service's differ by {difference}. It is "
    "decided once they agree.",
    may_release=True,
)
def clocks_differ(context: RuleContext) -> Iterator[Violation]:  # noqa: ARG001 - the signature of a check
    """Finds nothing itself: the engine tells by it what the rules that read the clock found (`defer`)."""
    yield from ()


def defer(found: Violation, by: Rule, difference: timedelta) -> Violation:
    """Give what a rule that reads the clock found as what has to wait until the clocks agree."""
    values = {"rule": by.id, "difference": format_difference(difference)}
    return Violation(found.where, found.line_ids, values, (by.id, *found.evidence))


def format_difference(difference: timedelta) -> str:
    """Round to the largest unit, so that the sentence stays the same from one assessment to the next."""
    seconds = difference.total_seconds()
    size, unit = next(((size, unit) for size, unit in _UNITS if round(seconds / size) >= 1), (1, "second"))
    number = round(seconds / size)
    return f"{number} {unit}{'' if number == 1 else 's'}"
