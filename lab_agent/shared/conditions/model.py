"""Conditions: their names, what one is, and one that is open. Standard library only: everything above may name one.

A condition is a kind of trouble, such as "a laboratory system does not answer". Where there may be several at once, each has a
`subject`: the laboratory system, the order, the cause. Page, commands, `/readyz`, alerts, notifications and metrics say what the
table says; nothing about trouble is worded elsewhere. Names are stored, and are labels of metrics: one that was given stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from lab_agent.shared.systemd_units import typed, with_typed_commands


class ConditionId(StrEnum):
    """What can be wrong: subject of the matter, then what is wrong with it."""

    # the exchange service
    EXCHANGE_UNAVAILABLE = "exchange.unavailable"
    EXCHANGE_SLOW = "exchange.slow"
    EXCHANGE_ASKS_TO_WAIT = "exchange.asks_to_wait"
    EXCHANGE_SIGN_IN = "exchange.sign_in"
    EXCHANGE_POLL = "exchange.poll"
    EXCHANGE_POLL_CUT_OFF = "exchange.poll_cut_off"
    EXCHANGE_FOREIGN_LINKS = "exchange.foreign_links"
    EXCHANGE_PART_UNAVAILABLE = "exchange.part_unavailable"
    EXCHANGE_UNREADABLE_TASKS = "exchange.unreadable_tasks"
    EXCHANGE_SEARCH_NOT_FILTERED = "exchange.search_not_filtered"
    EXCHANGE_DOCUMENT_CHANGED = "exchange.document_changed"
    EXCHANGE_RESTORED = "exchange.restored"
    EXCHANGE_NO_CONTRACT = "exchange.no_contract"
    CLOCK_DIFFERS = "clock.differs"

    # laboratory systems
    LIS_UNAVAILABLE = "lis.unavailable"
    LIS_NOT_LOADED = "lis.not_loaded"
    LIS_REMOVED = "lis.removed"
    LIS_PAUSED = "lis.paused"
    LIS_MAP_INVALID = "lis.map_invalid"
    LIS_NEEDS_RESTART = "lis.needs_restart"
    LIS_SILENT = "lis.silent"
    LIS_REFUSED_MESSAGES = "lis.refused_messages"
    LIS_CONNECTIONS = "lis.connections"
    LIS_UNFINISHED_INPUT = "lis.unfinished_input"
    LIS_TURNED_AWAY = "lis.turned_away"
    LIS_UNNAMED_LINES = "lis.unnamed_lines"
    LIS_ADAPTER_ALERT = "lis.adapter_alert"

    # orders and lines
    ORDERS_HELD = "orders.held"
    ORDERS_OVERDUE = "orders.overdue"
    ORDERS_PART_WAITS = "orders.part_waits"
    ORDERS_TASK_UNREADABLE = "orders.task_unreadable"
    LINES_HELD = "lines.held"
    LINES_TASK_UNREADABLE = "lines.task_unreadable"
    RULE_STOPPED = "rule.stopped"

    # results
    RESULTS_UNMATCHED = "results.unmatched"
    RESULTS_UNMAPPED = "results.unmapped"
    RESULTS_HELD = "results.held"

    # jobs, by why they fail
    JOBS_SIGN_IN = "jobs.sign_in"
    JOBS_SERVICE_UNAVAILABLE = "jobs.service_unavailable"
    JOBS_SERVICE_ASKS_TO_WAIT = "jobs.service_asks_to_wait"
    JOBS_OUTCOME_UNKNOWN = "jobs.outcome_unknown"
    JOBS_INVALID_RESPONSE = "jobs.invalid_response"
    JOBS_READ_REJECTED = "jobs.read_rejected"
    JOBS_TASK_UNREADABLE = "jobs.task_unreadable"
    JOBS_WRITE_REJECTED = "jobs.write_rejected"
    JOBS_NO_RIGHT = "jobs.no_right"
    JOBS_SEVERAL_MATCHES = "jobs.several_matches"
    JOBS_NEWER_ON_SERVICE = "jobs.newer_on_service"
    JOBS_FOREIGN_LINK = "jobs.foreign_link"
    JOBS_LIS_UNAVAILABLE = "jobs.lis_unavailable"
    JOBS_LIS_DISK_FULL = "jobs.lis_disk_full"
    JOBS_LIS_OUTCOME_UNKNOWN = "jobs.lis_outcome_unknown"
    JOBS_LIS_REJECTED = "jobs.lis_rejected"
    JOBS_LIS_NOT_LOADED = "jobs.lis_not_loaded"
    JOBS_INTERNAL_ERROR = "jobs.internal_error"
    JOBS_OTHER = "jobs.other"

    # the store
    STORE_UNREACHABLE = "store.unreachable"
    STORE_LOCKED = "store.locked"
    STORE_DISK_FULL = "store.disk_full"
    STORE_READ_ONLY = "store.read_only"
    STORE_DELETED = "store.deleted"
    STORE_LOG_DELETED = "store.log_deleted"
    STORE_DAMAGED = "store.damaged"
    STORE_OTHER_KEY = "store.other_key"
    STORE_OTHER_SCHEMA = "store.other_schema"
    STORE_NEWER_SCHEMA = "store.newer_schema"
    STORE_SECOND_AGENT = "store.second_agent"
    STORE_RESTORED = "store.restored"

    # the agent and its machine
    AGENT_NOT_RUNNING = "agent.not_running"
    AGENT_NOT_ANSWERING = "agent.not_answering"
    AGENT_FROZEN = "agent.frozen"
    AGENT_LOST_MACHINE = "agent.lost_machine"
    AGENT_STOOD_STILL = "agent.stood_still"
    AGENT_POLL_OVERDUE = "agent.poll_overdue"
    AGENT_TASK_ENDED = "agent.task_ended"
    AGENT_CANNOT_WORK = "agent.cannot_work"
    AGENT_PART_FAILS = "agent.part_fails"
    AGENT_SECOND_AGENT = "agent.second_agent"
    AGENT_PROBE_HANGS = "agent.probe_hangs"
    AGENT_PORT_TAKEN = "agent.port_taken"
    DISK_LOW = "disk.low"
    SETTINGS_INVALID = "settings.invalid"
    SETTINGS_READABLE_BY_OTHERS = "settings.readable_by_others"
    SETTINGS_EQUAL_PORTS = "settings.equal_ports"
    BACKUP_OLD = "backup.old"
    NOTIFICATION_FAILED = "notification.failed"

    # the laboratory's API, its catalogue and labels
    API_NOT_ANSWERING = "api.not_answering"
    API_NOT_PUBLIC = "api.not_public"
    API_NOT_READY = "api.not_ready"
    API_CALLERS_REFUSED = "api.callers_refused"
    API_CALLERS_ANONYMOUS = "api.callers_anonymous"
    API_CATALOGUE_OUTDATED = "api.catalogue_outdated"
    CATALOGUE_UNREADABLE = "catalogue.unreadable"
    CATALOGUE_INVALID = "catalogue.invalid"
    CATALOGUE_FOLDER_UNUSED = "catalogue.folder_unused"
    CATALOGUE_REPLACED = "catalogue.replaced"
    CATALOGUE_SAMPLE = "catalogue.sample"
    LABELS_LOW = "labels.low"
    LABELS_EXHAUSTED = "labels.exhausted"


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
