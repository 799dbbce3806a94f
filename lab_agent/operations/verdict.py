"""How things are, in one sentence: the first that a page says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.shared.conditions.model import AffectedCount, OpenCondition, Severity
from lab_agent.shared.text import format_age, shorten

_MAX_TITLE = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence, and how bad what it says is; None where nothing is wrong."""

    text: str
    severity: Severity | None = None


def give_verdict(conditions: Sequence[OpenCondition], now: datetime, waiting: int = 0) -> Verdict:
    """Say how things are: the first of the `conditions` (worst first), how many others there are, or that nothing is wrong.

    `waiting` is how many things wait for a person: without a condition about them they are named by their number alone.
    """
    wrong = [each for each in conditions if each.condition.severity is not Severity.NOTICE]
    if wrong:
        others = f" And {len(wrong) - 1} more." if len(wrong) > 1 else ""
        return Verdict(f"{_say(wrong[0], now)}.{others}", wrong[0].condition.severity)
    if waiting:
        return Verdict(f"Works, and {_count(waiting, 'thing')} for a person.", Severity.WARNING)
    return Verdict("Works: nothing waits for a person.")


def _say(found: OpenCondition, now: datetime) -> str:
    consequence = _join(found.affected) if found.affected else found.condition.affects
    return f"{shorten(found.title, _MAX_TITLE)}, for {format_age(min(found.since, now), now)}; {consequence}"


def _join(affected: Sequence[AffectedCount]) -> str:
    *first, last = [str(each) for each in affected]
    verb = "waits" if sum(each.number for each in affected) == 1 else "wait"
    return f"{', '.join(first)} and {last} {verb}" if first else f"{last} {verb}"


def _count(number: int, noun: str) -> str:
    return f"1 {noun} waits" if number == 1 else f"{number} {noun}s wait"
