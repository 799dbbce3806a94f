"""How operation is now: the open alerts, what the probes find at once, whether the agent runs, and how much waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lab_agent.bootstrap import Components
from lab_agent.cli.agent_life import UNASKED, Listener, ask_agent_page, find_absence, find_absence_without_store
from lab_agent.operations.agent import AgentLimits, AgentState, living_workers, read_agent_state
from lab_agent.operations.attention_alerts import ATTENTION_CONDITIONS, AttentionAlerts
from lab_agent.operations.cause_groups import CauseGroup, read_groups
from lab_agent.operations.machine import written_at
from lab_agent.operations.monitor import PROBE_SECONDS, Finding, Probe, late_finding
from lab_agent.operations.report import list_conditions
from lab_agent.queue.workers import WorkerRecord
from lab_agent.settings.root import Settings
from lab_agent.shared.conditions.model import ConditionId, OpenCondition, Severity
from lab_agent.shared.errors import CryptoError, EmptyDatabaseError, LabAgentError, StoreError, StoreFault, StoreUnreachableError
from lab_agent.store.agent_lock import read_holder
from lab_agent.store.engine import sqlite_file
from lab_agent.store.event_records import Alert
from lab_agent.store.missing_database import find_missing_database, find_remains
from lab_agent.store.read_models import AffectedNumbers, Overview, RecentActivity
from lab_agent.store.schema import check_schema
from lab_agent.store.store_health import StoreOutage
from lab_agent.store.unit_of_work import UnitOfWork
from lab_agent.worker_bootstrap import build_probes

_FAILING_FOR = timedelta(minutes=1)
"""A shorter failure may be over at the next attempt."""
_RECENT = timedelta(hours=1)
_NEEDS_NETWORK = frozenset({"api", "clock", "exchange", "lis"})
"""Subjects of conditions whose probes ask other systems."""
_OF_OPERATION = frozenset(
    {
        ConditionId.API_NOT_ANSWERING,
        ConditionId.API_NOT_READY,
        ConditionId.API_NOT_PUBLIC,
        ConditionId.API_CATALOGUE_OUTDATED,
    }
)

_NEVER_RUN = AgentState(workers=(), last_poll=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """What the store says, as of one moment each."""

    overview: Overview
    numbers: AffectedNumbers
    recent: RecentActivity
    agent: AgentState
    attention: tuple[Alert, ...]
    """What waits for a person, or fails, as the agent would tell it at its next look."""
    causes: tuple[CauseGroup, ...]
    """All that fails or waits, by cause, the longest waiting first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What holds `at` a time, worst first; `store` is None where the store cannot be read, which is then a condition."""

    at: datetime
    conditions: tuple[OpenCondition, ...]
    store: StoreState | None
    living: tuple[WorkerRecord, ...] = ()
    is_new: bool = False
    """Whether the database is missing or empty, and always was: the first step of the installation is still to be taken."""

    @property
    def exit_code(self) -> int:
        """That of the command that shows it: 2 while something is critical, 1 while a person is needed otherwise, else 0."""
        severities = {each.condition.severity for each in self.conditions}
        return 2 if Severity.CRITICAL in severities else int(Severity.WARNING in severities)

    @property
    def needing_person(self) -> tuple[OpenCondition, ...]:
        """The conditions that a person has to see to."""
        return tuple(each for each in self.conditions if each.condition.severity is not Severity.NOTICE)


async def read_operation(
    parts: Components, *, offline: bool, ask_agent: bool, store_error: LabAgentError | None = None
) -> Operation:
    """Look at everything once.

    `offline` leaves out what asks other systems, and `ask_agent` asks the agent's own page how it is. `store_error` is what is
    known to be wrong with the store, which may be readable all the same.
    """
    now, status = parts.clock.now(), parts.settings.status
    limits = AgentLimits.of(parts.settings.monitoring, parts.settings.worker)
    answer = await ask_agent_page(status) if ask_agent else UNASKED
    found, decided = await _look(build_probes(parts, once=True), offline=offline)
    try:
        store = await _read_store(parts, now)
    except (StoreError, CryptoError) as exc:
        if answer.listener is not Listener.AGENT and _is_new(parts.settings):  # an agent that runs has had a database
            found = [*_drop_unused(found), *find_absence(_NEVER_RUN, limits, answer, status, now)]
            return Operation(at=now, conditions=list_conditions(_to_alerts(found, (), now), None), store=None, is_new=True)
        observed = answer.store_conditions or (_date_back(store_condition(store_error or exc, now), parts),)
        found += find_absence_without_store(answer, status, read_holder(parts.settings.store.url)) if ask_agent else ()
        return Operation(at=now, conditions=list_conditions(_to_alerts(found, (), now), None, observed), store=None)
    found += find_absence(store.agent, limits, answer, status, now)
    known = (_date_back(store_condition(store_error, now), parts),) if store_error is not None else ()
    return Operation(
        at=now,
        conditions=list_conditions(_merge_alerts(store, found, decided, now), store.numbers, answer.store_conditions or known),
        store=store,
        living=living_workers(store.agent.workers, limits, now),
    )


def _is_new(settings: Settings) -> bool:
    """Whether the database is missing or empty because it was never used."""
    return (find_missing_database(settings) is not None or _is_empty(settings.store.url)) and find_remains(settings) is None


def _is_empty(url: str) -> bool:
    try:
        check_schema(url)
    except EmptyDatabaseError:
        return True
    except StoreError:
        return False
    return False


def _drop_unused(found: Iterable[Finding]) -> list[Finding]:
    """Leave out what is no trouble where nothing is in operation yet, such as an API that does not run."""
    return [each for each in found if each.condition not in _OF_OPERATION]


def _merge_alerts(store: StoreState, found: Sequence[Finding], decided: frozenset[ConditionId], now: datetime) -> list[Alert]:
    """Give what holds: what was found now, and the open alerts that could not be decided about."""
    kept = [each for each in store.overview.alerts if each.condition not in decided | ATTENTION_CONDITIONS]
    if not store.agent.workers:
        found = _drop_unused(found)
    return [*kept, *store.attention, *_to_alerts(found, store.overview.alerts, now)]


async def _read_store(parts: Components, now: datetime) -> StoreState:
    queries = parts.queries
    monitoring = parts.settings.monitoring
    failing_for = min(_FAILING_FOR, timedelta(seconds=monitoring.alert_after))
    look = AttentionAlerts(parts.store, parts.clock, failing_for, alert_after_attempts=monitoring.alert_after_attempts)

    def read(uow: UnitOfWork) -> tuple[AgentState, tuple[Alert, ...], tuple[CauseGroup, ...]]:
        return read_agent_state(uow), tuple(look.find(uow, now)), read_groups(uow, now)

    agent, attention, causes = await parts.store.run_read_only(read)
    return StoreState(
        overview=await queries.overview(now=now),
        numbers=await queries.affected_numbers(),
        recent=await queries.recent_activity(since=now - _RECENT),
        agent=agent,
        attention=attention,
        causes=causes,
    )


async def _look(probes: Iterable[Probe], *, offline: bool) -> tuple[list[Finding], frozenset[ConditionId]]:
    """Look with the probes; what they found, and the conditions that they could decide about."""
    found: list[Finding] = []
    decided: frozenset[ConditionId] = frozenset()
    for probe in probes:
        if offline and any(each.value.partition(".")[0] in _NEEDS_NETWORK for each in probe.conditions):
            continue
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                found += await probe.look()
        except TimeoutError:
            found.append(late_finding(probe, PROBE_SECONDS))
            continue
        except (LabAgentError, OSError):
            continue  # it cannot tell: what the agent has found before stays
        decided |= probe.conditions
    return found, decided


def _to_alerts(found: Iterable[Finding], known: Sequence[Alert], now: datetime) -> list[Alert]:
    """Give what was found as alerts; one that is open already has begun earlier."""
    since = {each.key: each.since for each in known}
    return [
        Alert(
            condition=each.condition,
            subject=each.subject,
            detail=each.detail,
            since=each.since or since.get(each.key, now),
            opened_at=now,
            count=each.count,
        )
        for each in found
    ]


def _date_back(found: OpenCondition, parts: Components) -> OpenCondition:
    """Give it with its beginning, where a time stamp tells that: else its age would begin anew with every call."""
    database, began = sqlite_file(parts.settings.store.url), None
    if found.condition.id is ConditionId.STORE_DAMAGED and database is not None:
        began = written_at(database)
    elif found.condition.id is ConditionId.STORE_DELETED and database is not None:
        began = written_at(database.parent)
    elif found.condition.id is ConditionId.STORE_OTHER_KEY and parts.config is not None:
        began = written_at(parts.config)
    return found if began is None else replace(found, since=min(began, found.since))


def store_condition(error: LabAgentError, now: datetime) -> OpenCondition:
    """Give what is wrong with the store as the condition that it is."""
    fault = StoreFault.OTHER_KEY if isinstance(error, CryptoError) else StoreFault.UNREACHABLE
    if isinstance(error, StoreUnreachableError) and error.fault is not None:
        fault = error.fault
    return StoreOutage(fault, str(error), now).to_condition()
