"""What a condition is, and one that is open. Standard library only: everything above may name one.

A condition is a kind of trouble, such as "a laboratory system does not answer". Where there may be several at once, each has a
`subject`: the laboratory system, the order, the cause. Page, commands, `/readyz`, alerts, notifications and metrics say what the
table says; nothing about trouble is worded elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from lab_agent.conditions.ids import ConditionId
from lab_agent.systemd_units import typed, with_typed_commands


class Severity(StrEnum):
    """How bad it is, worst first."""

    CRITICAL = "critical"  # work stands still, or is in danger: wake somebody
    WARNING = "warning"  # a person is needed, in working hours
    NOTICE = "notice"  # worth knowing; nothing waits for a person


class Affected(StrEnum):
    """What is counted to say what a condition affects."""

    NOTHING = "nothing"  # what it affects cannot be counted
    EVERYTHING = "everything"  # all unfinished orders and results
    EXCHANGE_JOBS = "exchange_jobs"  # what waits to be read from, or written to, the exchange service
    LIS_JOBS = "lis_jobs"  # what waits to be told to the laboratory system that is the subject
    LIS_LINES = "lis_lines"  # order lines that wait for a result of the laboratory system that is the subject
    AS_COUNTED = "as_counted"  # whoever noticed it counted, and the number is kept with the alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One line of the table. In `title`, `cause`, `mend`, `command` and `page`, `{subject}` stands for what it is about."""

    id: ConditionId
    severity: Severity
    title: str
    """The first sentence that people read, without a full stop."""
    cause: str
    """What is behind it, as far as the program can know."""
    affects: str
    """What waits, or may go wrong, because of it."""
    affected: Affected
    mend: str
    """What to do."""
    command: str = ""
    """The command that does it, or says more; empty where there is none."""
    noticed: str
    """How it is noticed."""
    opens: str
    """When its alert opens."""
    ends: str
    """When its alert ends."""
    page: str = ""
    """Path on the status page where it is seen to."""
    subject: str = ""
    """What a subject is; empty where there is only one."""
    subject_words: Mapping[str, str] = field(default_factory=dict)
    """What subjects that are codes mean: `{words}` stands for it in texts, and for `other_words` where it has no entry."""
    other_words: str = "{subject}"
    covered_by: frozenset[ConditionId] = frozenset()
    """Conditions that say the same more precisely: while one of them is open, this one is not told."""
    is_unready: bool = False
    """Whether no work can be accepted while it is open: `/readyz` answers 503."""

    def fill(self, text: str, subject: str) -> str:
        """Give one of its texts about a subject."""
        words = self.subject_words.get(subject, self.other_words) or "see the reason of each"  # so that none ends in a colon
        return text.replace("{words}", words).replace("{subject}", subject)


class AlertKey(NamedTuple):
    """Names an alert: at most one of a key is open."""

    condition: ConditionId
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.condition.value}/{self.subject}" if self.subject else self.condition.value

    @classmethod
    def parse(cls, text: str) -> AlertKey:
        """Read a key as `str` writes it. Raises `ValueError` for a condition that is none."""
        condition, _, subject = text.partition("/")
        return cls(ConditionId(condition), subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedCount:
    """How many of something wait, as in `3 orders`; `page` is where they are listed."""

    number: int
    noun: str
    """In the singular, as in `order`."""
    rest: str = ""
    """What follows the noun, as in ` to fetch`."""
    page: str = ""
    is_exact: bool = True
    """False where no more than `number` were counted."""

    def __str__(self) -> str:
        ending = "" if self.number == 1 else "s"
        return f"{'' if self.is_exact else 'more than '}{self.number} {self.noun}{ending}{self.rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCondition:
    """A condition that holds now.

    `detail` is what was found this time, such as the last error: it identifies no patient. `since` is when it began: where
    something waits, when that was first due. `affected` is what was counted now.
    """

    condition: Condition
    subject: str = ""
    detail: str = ""
    since: datetime
    affected: tuple[AffectedCount, ...] = ()

    @property
    def key(self) -> AlertKey:
        """Its key."""
        return AlertKey(self.condition.id, self.subject)

    @property
    def title(self) -> str:
        """The first sentence, about this subject."""
        return self._about(self.condition.title)

    @property
    def cause(self) -> str:
        """What is behind it, and what was found this time."""
        cause = self._about(self.condition.cause)
        return with_typed_commands(f"{cause}: {self.detail}" if self.detail else cause)

    @property
    def mend(self) -> str:
        """What to do."""
        return with_typed_commands(self._about(self.condition.mend))

    @property
    def command(self) -> str:
        """The command that does it, as a shell on this machine takes it; empty where there is none."""
        return typed(self.condition.command).replace("{subject}", quote(self.subject))

    @property
    def page(self) -> str:
        """Path on the status page; empty where there is none."""
        return self._about(self.condition.page)

    def _about(self, text: str) -> str:
        return self.condition.fill(text, self.subject)
