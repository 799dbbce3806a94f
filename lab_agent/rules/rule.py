"""What a rule is, and the decorator that makes one of a check.

A rule reports all that is wrong in its own matter; it knows nothing of other rules, nor of what follows from its violations.
The severity `refuse` is only for faults of the order. What may be our own fault (an unknown contract, a missing right, an empty
catalogue) has the severity `hold`, and settings cannot make it reject (law 10), unless the rule has `may_refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lab_agent.rules.context import RuleContext
from lab_agent.shared.text import shorten


class Severity(StrEnum):
    """What a violation does: reject the line (or every line), hold the order for a person, warn, or nothing."""

    REFUSE = "refuse"
    HOLD = "hold"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Violation:
    """One problem: its place, the line Tasks that it concerns (none: the whole order), and the values for the message.

    `evidence` is what a person looks at who releases it: where that changes, another person has to look again.
    """

    where: str
    line_ids: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()


RuleCheck = Callable[[RuleContext], Iterable[Violation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    `section` is the part of the interface document that it comes from, `message` a template with `{where}` and the values of its
    violations. `may_refuse` lets settings make a rule that holds reject. `may_release` lets an operator hand an order over in
    spite of it, once somebody has looked; with `look_at_each`, at that very order, so not at many together. `reads_clock`: what
    it finds depends on what time it is; while our clock and the service's differ, what would reject or hold is found by
    `order.clocks-differ` instead.
    """

    id: str
    severity: Severity
    section: str
    check: RuleCheck
    message: str
    may_refuse: bool = False
    may_release: bool = False
    look_at_each: bool = False
    reads_clock: bool = False

    @property
    def allowed_severities(self) -> frozenset[Severity]:
        """The severities that settings may give it."""
        if self.severity is Severity.HOLD and not self.may_refuse:
            return frozenset({Severity.HOLD, Severity.WARN})
        return frozenset(Severity)


def rule(
    id_: str,
    severity: Severity,
    section: str,
    message: str,
    *,
    may_refuse: bool = False,
    may_release: bool = False,
    look_at_each: bool = False,
    reads_clock: bool = False,
) -> Callable[[RuleCheck], Rule]:
    """Make a `Rule` of the check below the decorator; the arguments are the fields of `Rule`."""

    def make(check: RuleCheck) -> Rule:
        return Rule(
            id=id_,
            severity=severity,
            section=section,
            check=check,
            message=message,
            may_refuse=may_refuse,
            may_release=may_release,
            look_at_each=look_at_each,
            reads_clock=reads_clock,
        )

    return make


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation as it is shown. `line` is the id of a line Task, or None for the whole order.

    `digest` identifies what was found: a release of it is none of what the same rule finds elsewhere, or later.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    line: str | None = None
    digest: str = ""


def format_message(template: str, where: str, values: Mapping[str, str]) -> str:
    """Fill a template. The values are the partner's text, so they are shortened and lose their line breaks."""
    return template.format_map({**{key: shorten(value) for key, value in values.items()}, "where": where})
