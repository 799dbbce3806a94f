"""What a rule is.

A rule says all that is wrong in its own matter; it knows nothing of the other rules and of what follows. `refuse` is only for
faults of the order. What may be our own fault (an unknown contract, a missing right, an empty catalogue) has the severity `hold`,
and settings cannot make a refusal of it (law 10), unless the rule says that they may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lab_agent.domain.text import shorten
from lab_agent.rules.context import RuleContext


class Severity(StrEnum):
    """What a problem does: refuse the line (or every line), hold the order for a person, warn, or nothing."""

    REFUSE = "refuse"
    HOLD = "hold"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Violation:
    """One problem: its place, the line Tasks that it concerns (none: the whole order), and the words for the message."""

    where: str
    line_ids: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)


RuleCheck = Callable[[RuleContext], Iterable[Violation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `section` is the part of the interface that it comes from; `message` a template with `{where}` and its values."""

    id: str
    severity: Severity
    section: str
    check: RuleCheck
    message: str
    may_refuse: bool = False

    @property
    def allowed_severities(self) -> frozenset[Severity]:
        """The severities that settings may give it."""
        if self.severity is Severity.HOLD and not self.may_refuse:
            return frozenset({Severity.HOLD, Severity.WARN})
        return frozenset(Severity)


def rule(id_: str, severity: Severity, section: str, message: str, *, may_refuse: bool = False) -> Callable[[RuleCheck], Rule]:
    """Make a `Rule` of the check below it; `message` and the other words are those of `Rule`."""

    def make(check: RuleCheck) -> Rule:
        return Rule(id=id_, severity=severity, section=section, check=check, message=message, may_refuse=may_refuse)

    return make


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem as it is shown. `line` is the id of a line Task, or None for the whole order."""

    rule: str
    severity: Severity
    where: str
    message: str
    line: str | None = None


def format_message(template: str, where: str, values: Mapping[str, str]) -> str:
    """Fill a template; values are cut to a length for people and lose line breaks, since they are the partner's."""
    return template.format_map({**{key: shorten(value) for key, value in values.items()}, "where": where})
