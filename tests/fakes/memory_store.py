"""The store in memory: the port's behaviour without a database, for tests of the workflow and of adapters.

It passes the same contract suite as SQLite and PostgreSQL. One unit of work runs at a time, on a copy; `commit` puts the copy in
the place of the original. Nothing survives the process, and nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from typing_extensions import override

from lab_agent import exact_json
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.activity import HourlyActivity, Measure
from lab_agent.domain.adapter_pauses import pause_key
from lab_agent.domain.api_refusals import KEPT, PERIOD, ApiRefusals, RefusalReason, period_start
from lab_agent.domain.audit import AuditEntry
from lab_agent.domain.catalogue_records import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, LineKey, OrderKey, RefusedKey, ReportKey
from lab_agent.domain.job_records import (
    AT_LABORATORY_SYSTEM,
    GIVING_WAY,
    PASSED_IN_REVIEW,
    FailingJobs,
    FailureGroup,
    Job,
    JobKind,
    NewJob,
    ServiceMessage,
)
from lab_agent.domain.notifications import ChannelRecord, Notification
from lab_agent.domain.programs import RunningProgram, SchemaVersions
from lab_agent.domain.records import Alert, Event, LabelUse, LineRecord, OrderRecord, WaitingGroup
from lab_agent.domain.refused_messages import RefusedContent, RefusedMessage, RefusedState
from lab_agent.domain.report_records import HoldReason, HostedDocument, ReportRecord, UploadRecord, result_alert_key
from lab_agent.domain.state_machines import (
    AT_LABORATORY,
    BLOCKING_STATES,
    CLAIMABLE_STATES,
    FINISHED_REPORTS,
    JOBS_NEEDING_OPERATOR,
    LABEL_RELEASING,
    OPEN_JOBS,
    ORDERS_BEFORE_HANDOVER,
    REPORTS_NEEDING_OPERATOR,
    REPORTS_OF_THEIR_ORDER,
    UNDONE_LINES,
    WAITING_LINES,
    WITHDRAWN_LINES,
    JobState,
    LineState,
    OrderState,
    ReportState,
)
from lab_agent.domain.store_health import StoreHealth
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.domain.workers import WorkerRecord
from lab_agent.errors import AlreadyExistsError, CryptoError, LeaseLostError, StoreError
from lab_agent.ports.activity import ActivityRepository
from lab_agent.ports.api_refusals import ApiRefusalRepository
from lab_agent.ports.audit import AuditRepository
from lab_agent.ports.catalogue_repositories import CatalogueRepository, IssuedLabelRepository, TurnaroundNoticeRepository
from lab_agent.ports.credential_repositories import (
    ApiTokenRepository,
    OAuthTokenRepository,
    SessionRecord,
    SessionRepository,
    StoredToken,
    UserRecord,
    UserRepository,
)
from lab_agent.ports.erasure import Erasure
from lab_agent.ports.event_repositories import AlertRepository, EventRepository, KeyValueRepository, RejectionRepository
from lab_agent.ports.job_repository import JobLimits, JobRepository, LeaseToken, PendingWork
from lab_agent.ports.leases import LeaseRepository
from lab_agent.ports.notifications import NotificationRepository
from lab_agent.ports.programs import ProgramRepository
from lab_agent.ports.refused_messages import RefusedMessageRepository
from lab_agent.ports.repositories import OrderRepository, Purge, ReportRepository, Store, UnitOfWork, UploadRepository
from lab_agent.ports.search_index import SearchIndex, SearchPortion
from lab_agent.ports.vault import HostedDocumentRepository, Vault
from lab_agent.ports.workers import WorkerRepository


@dataclass(slots=True)
class MemoryData:
    """Everything in the store; a copy of it shares the frozen records and nothing else."""

    key_values: dict[str, str]
    orders: dict[str, OrderRecord] = field(default_factory=dict)
    lines: dict[str, LineRecord] = field(default_factory=dict)
    work_orders: dict[tuple[str, str], WorkOrder] = field(default_factory=dict)
    label_uses: list[LabelUse] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    dedup_keys: set[str] = field(default_factory=set)
    reports: dict[str, ReportRecord] = field(default_factory=dict)
    awaited_names: set[tuple[str, str]] = field(default_factory=set)
    uploads: dict[str, UploadRecord] = field(default_factory=dict)
    identities: dict[str, bytes] = field(default_factory=dict)
    documents: dict[str, tuple[bytes, str, datetime]] = field(default_factory=dict)
    reported_patients: dict[ReportKey, bytes] = field(default_factory=dict)
    service_messages: dict[JobId, tuple[OrderKey, tuple[ServiceMessage, ...]]] = field(default_factory=dict)
    hosted_documents: dict[str, HostedDocument] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    notifications: dict[tuple[str, AlertKey], Notification] = field(default_factory=dict)
    notification_channels: dict[str, ChannelRecord] = field(default_factory=dict)
    leases: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    rejections: list[tuple[str, str, datetime]] = field(default_factory=list)
    refused_messages: dict[RefusedKey, RefusedMessage] = field(default_factory=dict)
    refused_contents: dict[RefusedKey, RefusedContent] = field(default_factory=dict)
    oauth_tokens: dict[int, StoredToken] = field(default_factory=dict)
    refresh_lease: tuple[str, datetime] | None = None
    users: dict[str, UserRecord] = field(default_factory=dict)
    status_sessions: dict[str, SessionRecord] = field(default_factory=dict)
    activity: dict[tuple[datetime, Measure], HourlyActivity] = field(default_factory=dict)
    patient_terms: dict[OrderKey, frozenset[str]] = field(default_factory=dict)
    catalogues: list[CatalogueVersion] = field(default_factory=list)
    turnaround_notices: list[TurnaroundNotice] = field(default_factory=list)
    label_ranges: dict[tuple[str, int], int] = field(default_factory=dict)
    issued_labels: dict[str, IssuedLabel] = field(default_factory=dict)
    api_tokens: dict[str, ApiToken] = field(default_factory=dict)
    api_refusals: list[ApiRefusals] = field(default_factory=list)
    workers: dict[str, WorkerRecord] = field(default_factory=dict)
    programs: dict[str, RunningProgram] = field(default_factory=dict)
    audit: list[AuditEntry] = field(default_factory=list)
    last_job_id: int = 0
    places_taken: dict[JobId, JobId] = field(default_factory=dict)
    """The job in whose turn a job goes."""
    last_report_sequence: int = 0

    def copy(self) -> MemoryData:
        """Give a copy that can be changed without changing this one."""
        return MemoryData(**{name: _copy_part(getattr(self, name)) for name in _PARTS})


_PARTS = tuple(each.name for each in fields(MemoryData))


def _copy_part(part: object) -> object:
    return part.copy() if isinstance(part, dict | list | set) else part


class MemoryUploadRepository(UploadRepository):
    """Uploads."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def get(self, identifier: str) -> UploadRecord | None:
        return self._data.uploads.get(identifier)

    @override
    def find(self, identifiers: Collection[str]) -> Mapping[str, UploadRecord]:
        return {each: self._data.uploads[each] for each in identifiers if each in self._data.uploads}

    @override
    def save(self, upload: UploadRecord) -> None:
        self._data.uploads[upload.identifier] = upload


class MemoryVault(Vault):
    """Identification data and documents; in memory alone, so not encrypted."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def save_identity(self, order: OrderKey, identity: bytes, *, at: datetime) -> None:
        del at
        self._data.identities[order] = identity

    @override
    def index_patient(self, order: OrderKey, terms: Collection[str], *, is_first: bool = False) -> None:
        del is_first
        self._data.patient_terms[order] = frozenset(terms)

    @override
    def identity(self, order: OrderKey) -> bytes | None:
        return self._data.identities.get(order)

    @override
    def save_reported_patient(self, report: ReportKey, patient: bytes, *, at: datetime) -> None:
        del at
        self._data.reported_patients[self._data.reports[report].key] = patient

    @override
    def reported_patient(self, report: ReportKey) -> bytes | None:
        return self._data.reported_patients.get(report)

    @override
    def save_service_message(self, job: JobId, order: OrderKey, said: ServiceMessage) -> None:
        _, before = self._data.service_messages.get(job, (order, ()))
        self._data.service_messages[job] = (order, (*before, said)[-10:])

    @override
    def service_messages(self, order: OrderKey) -> Mapping[JobId, tuple[ServiceMessage, ...]]:
        return {job: said for job, (about, said) in self._data.service_messages.items() if about == order}

    @override
    def save_document(self, content: bytes, content_type: str, *, at: datetime) -> str:
        name = hashlib.sha256(content).hexdigest()
        self._data.documents[name] = (content, content_type, at)
        return name

    @override
    def document(self, document: str) -> tuple[bytes, str] | None:
        found = self._data.documents.get(document)
        return None if found is None else found[:2]

    @override
    def seal(self, content: bytes) -> bytes:
        return b"sealed:" + content[::-1]

    @override
    def unseal(self, sealed: bytes) -> bytes:
        if not sealed.startswith(b"sealed:"):
            raise CryptoError("no key fits")
        return sealed.removeprefix(b"sealed:")[::-1]


class MemoryHostedDocumentRepository(HostedDocumentRepository):
    """Documents that our own API serves."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def save(self, document: HostedDocument) -> None:
        self._data.hosted_documents[document.address] = document

    @override
    def get(self, address: str) -> HostedDocument | None:
        return self._data.hosted_documents.get(address)


class MemoryEventRepository(EventRepository):
    """Lines of timelines."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, event: Event) -> None:
        self._data.events.append(event)

    @override
    def add_once(self, event: Event, *, since: datetime) -> bool:
        of = (event.order, event.action, event.text)
        if any((each.order, each.action, each.text) == of and each.at >= since for each in self._data.events):
            return False
        self.add(event)
        return True


class MemoryAlertRepository(AlertRepository):
    """Alerts."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def open(self, alert: Alert, *, follow_oldest: bool = False) -> bool:
        index = self._open_alert_index(alert.key)
        if index is None:
            self._data.alerts.append(alert)
            return True
        known = self._data.alerts[index]
        since = alert.since if follow_oldest else min(known.since, alert.since)
        self._data.alerts[index] = replace(known, detail=alert.detail, since=since, count=alert.count)
        return False

    @override
    def close(self, key: AlertKey, *, now: datetime) -> bool:
        index = self._open_alert_index(key)
        if index is None:
            return False
        self._data.alerts[index] = replace(self._data.alerts[index], closed_at=now)
        return True

    @override
    def open_among(self, keys: Collection[AlertKey]) -> frozenset[AlertKey]:
        return frozenset(key for key in keys if self._open_alert_index(key) is not None)

    @override
    def open_of(self, conditions: Collection[ConditionId]) -> frozenset[AlertKey]:
        return frozenset(each.key for each in self._data.alerts if each.closed_at is None and each.condition in conditions)

    @override
    def all_open(self) -> tuple[Alert, ...]:
        return tuple(sorted((each for each in self._data.alerts if each.closed_at is None), key=lambda each: each.opened_at))

    @override
    def close_all(self, keys: Collection[AlertKey], *, now: datetime) -> None:
        for key in keys:
            self.close(key, now=now)

    @override
    def reopen(self, key: AlertKey, *, closed_after: datetime) -> bool:
        if self._open_alert_index(key) is not None:
            return False
        closed = [each for each in self._data.alerts if each.key == key and each.closed_at and each.closed_at > closed_after]
        if closed:
            index = max(i for i, each in enumerate(self._data.alerts) if each is closed[-1])
            self._data.alerts[index] = replace(self._data.alerts[index], closed_at=None)
        return bool(closed)

    def _open_alert_index(self, key: AlertKey) -> int | None:
        return next(
            (index for index, alert in enumerate(self._data.alerts) if alert.key == key and alert.closed_at is None), None
        )


class MemoryNotificationRepository(NotificationRepository):
    """What notification channels have told."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def all(self) -> tuple[Notification, ...]:
        return tuple(sorted(self._data.notifications.values(), key=lambda each: (each.noticed_at, each.subject)))

    @override
    def save(self, notifications: Iterable[Notification]) -> None:
        self._data.notifications |= {(each.channel, each.key): each for each in notifications}

    @override
    def delete(self, notifications: Iterable[Notification]) -> None:
        for each in notifications:
            self._data.notifications.pop((each.channel, each.key), None)

    @override
    def channels(self) -> tuple[ChannelRecord, ...]:
        return tuple(self._data.notification_channels[name] for name in sorted(self._data.notification_channels))

    @override
    def save_channel(self, channel: ChannelRecord) -> None:
        self._data.notification_channels[channel.name] = channel


class MemoryRejectionRepository(RejectionRepository):
    """Which rule rejected which order."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        self._data.rejections.append((rule, order, at))

    @override
    def count_since(self, rule: str, since: datetime) -> int:
        return len({order for name, order, at in self._data.rejections if name == rule and at >= since})


class MemoryKeyValueRepository(KeyValueRepository):
    """Single values."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def get(self, key: str) -> str | None:
        return self._data.key_values.get(key)

    @override
    def set(self, key: str, value: str) -> None:
        self._data.key_values[key] = value


class MemoryOAuthTokenRepository(OAuthTokenRepository):
    """Our sign-in at the service."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def current(self) -> StoredToken | None:
        return self._data.oauth_tokens[max(self._data.oauth_tokens)] if self._data.oauth_tokens else None

    @override
    def add(self, token: StoredToken) -> None:
        if self._data.oauth_tokens and max(self._data.oauth_tokens) >= token.generation:
            raise LeaseLostError("This generation of the sign-in, or a newer one, is stored already; nothing was written.")
        self._data.oauth_tokens[token.generation] = token

    @override
    def forget(self) -> None:
        self._data.oauth_tokens.clear()

    @override
    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        held = self._data.refresh_lease
        if held is not None and held[0] != owner and held[1] > now:
            return False
        self._data.refresh_lease = (owner, now + lease)
        return True

    @override
    def release_refresh_lease(self, owner: str) -> None:
        if self._data.refresh_lease is not None and self._data.refresh_lease[0] == owner:
            self._data.refresh_lease = None


class MemorySessionRepository(SessionRepository):
    """Sign-ins to the status page."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def save(self, session: SessionRecord) -> None:
        self._data.status_sessions[session.id] = session

    @override
    def get(self, session: str) -> SessionRecord | None:
        return self._data.status_sessions.get(session)

    @override
    def get_with_user(self, session: str, user: str) -> tuple[SessionRecord | None, UserRecord | None]:
        return self.get(session), self._data.users.get(user)

    @override
    def current(self, *, now: datetime) -> tuple[SessionRecord, ...]:
        lasting = [each for each in self._data.status_sessions.values() if each.ended_at is None and each.expires_at > now]
        return tuple(sorted(lasting, key=lambda each: (each.account, -each.started_at.timestamp())))

    @override
    def purge(self, *, before: datetime) -> int:
        old = [key for key, each in self._data.status_sessions.items() if each.expires_at < before]
        for key in old:
            del self._data.status_sessions[key]
        return len(old)


class MemoryActivityRepository(ActivityRepository):
    """Hours."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def save(self, hours: Sequence[HourlyActivity]) -> None:
        self._data.activity |= {(each.hour, each.measure): each for each in hours}

    @override
    def get(self, hour: datetime, measure: Measure) -> HourlyActivity | None:
        return self._data.activity.get((hour, measure))

    @override
    def purge(self, *, before: datetime) -> int:
        old = [key for key in self._data.activity if key[0] < before]
        for key in old:
            del self._data.activity[key]
        return len(old)


class MemoryUserRepository(UserRepository):
    """Users of the status page."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, user: UserRecord) -> None:
        if user.name in self._data.users:
            raise AlreadyExistsError(f"There is already a user {user.name}; nothing was written.")
        self._data.users[user.name] = user

    @override
    def get(self, name: str) -> UserRecord | None:
        return self._data.users.get(name)

    @override
    def save(self, user: UserRecord) -> None:
        if user.name not in self._data.users:
            raise StoreError(f"There is no user {user.name}.")
        self._data.users[user.name] = user

    @override
    def remove(self, name: str) -> bool:
        return self._data.users.pop(name, None) is not None

    @override
    def all(self) -> tuple[UserRecord, ...]:
        return tuple(self._data.users[name] for name in sorted(self._data.users))


class MemoryJobRepository(JobRepository):
    """The job queue."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data
        self._made_due: set[JobKind] = set()

    @property
    @override
    def made_due(self) -> frozenset[JobKind]:
        return frozenset(self._made_due)

    @override
    def add(self, job: NewJob) -> bool:
        payload = exact_json.loads(exact_json.dumps(job.payload))
        if job.dedup_key in self._data.dedup_keys:
            return False
        born = min(job.due_at, datetime.now(UTC))
        self._data.dedup_keys.add(job.dedup_key)
        self._data.last_job_id += 1
        number = JobId(self._data.last_job_id)
        self._data.jobs[number] = Job(
            id=number,
            kind=job.kind,
            dedup_key=job.dedup_key,
            ordering_key=job.ordering_key,
            target=job.target,
            order=job.order,
            payload=payload,
            state=JobState.DUE,
            due_at=job.due_at,
            system=job.system,
            first_due_at=job.due_at,
            created_at=born,
            changed_at=born,
        )
        if job.in_place_of is not None:
            self._data.places_taken[number] = job.in_place_of
        self._made_due.add(job.kind)
        return True

    @override
    def add_all(self, jobs: Sequence[NewJob]) -> tuple[bool, ...]:
        return tuple(map(self.add, jobs))

    @override
    def claim(self, limits: JobLimits, *, owner: str, now: datetime, lease: timedelta) -> tuple[Job, ...]:
        found: list[Job] = []
        for kinds, limit in limits.items():
            of_queue = self._claimable(kinds, now)
            found += of_queue[: max(limit, 0)]
            if len(of_queue) < limit:
                self._made_due -= kinds
        claimed = tuple(job.claim(owner, now, lease) for job in sorted(found, key=_turn))
        self._data.jobs.update({job.id: job for job in claimed})
        return claimed

    @override
    def pending(self, kinds: Collection[JobKind], *, now: datetime) -> PendingWork:
        jobs = self._data.jobs.values()
        expired = any(job.state is JobState.IN_FLIGHT and not _is_leased(job, now) for job in jobs)
        return PendingWork(frozenset(job.kind for job in self._claimable(kinds, now)), expired)

    @override
    def expire_leases(self, now: datetime) -> int:
        expired = [job for job in self._data.jobs.values() if job.state is JobState.IN_FLIGHT and not _is_leased(job, now)]
        self._data.jobs.update({job.id: job.lease_expired(now) for job in expired})
        self._made_due.update(job.kind for job in expired)
        return len(expired)

    @override
    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        if not self.renew_leases((job,), now=now, lease=lease):
            raise LeaseLostError()

    @override
    def renew_leases(self, jobs: Collection[Job], *, now: datetime, lease: timedelta) -> frozenset[LeaseToken]:
        ours = [job for job in jobs if self._is_ours(job) and self._data.jobs[job.id].lease_until is not None]
        self._data.jobs.update({job.id: replace(self._data.jobs[job.id], lease_until=now + lease) for job in ours})
        return frozenset((job.id, job.fencing_token) for job in ours)

    @override
    def save(self, job: Job) -> None:
        if not self._is_ours(job):
            raise LeaseLostError()
        self._data.jobs[job.id] = replace(job, payload=exact_json.loads(exact_json.dumps(job.payload)))
        if job.is_waiting and job.due_at <= job.changed_at:
            self._made_due.add(job.kind)

    @override
    def save_all(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.save(job)

    @override
    def release(self, job: Job) -> None:
        self.save(job)
        self._made_due.update(other.kind for other in self._claimable(JobKind, job.changed_at, job.ordering_key))

    @override
    def get(self, job: JobId) -> Job | None:
        return self._data.jobs.get(job)

    @override
    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        ours = (job for job in self._data.jobs.values() if job.order == order)
        return tuple(job for job in ours if not open_only or job.state in OPEN_JOBS)

    @override
    def needing_operator(
        self, *, kind: JobKind | None = None, state: JobState | None = None, after: Job | None = None, limit: int
    ) -> tuple[Job, ...]:
        waiting = [job for job in self._data.jobs.values() if job.state in JOBS_NEEDING_OPERATOR]
        wanted = (job for job in waiting if kind in {None, job.kind} and state in {None, job.state})
        ordered = sorted(wanted, key=_by_age)
        return tuple(job for job in ordered if after is None or _by_age(after) < _by_age(job))[:limit]

    @override
    def failing(self, *, since: datetime, kind: JobKind | None = None) -> tuple[FailingJobs, ...]:
        groups: dict[tuple[FailureCause, JobKind], list[Job]] = {}
        for job in self._data.jobs.values():
            if job.is_failing and job.failure_cause and job.failing_since <= since and kind in {None, job.kind}:
                groups.setdefault((job.failure_cause, job.kind), []).append(job)
        return tuple(
            FailingJobs(
                cause=cause,
                kind=kind,
                count=len(found),
                since=min(job.failing_since for job in found if job.failing_since),
                first=min(job.id for job in found),
            )
            for (cause, kind), found in sorted(groups.items())
        )

    @override
    def failure_groups(self) -> tuple[FailureGroup, ...]:
        groups: dict[tuple[FailureCause, str, JobKind], list[Job]] = {}
        for job in self._data.jobs.values():
            if job.failure_cause and job.failing_since:
                groups.setdefault((job.failure_cause, job.system, job.kind), []).append(job)
        return tuple(_failure_group(*key, found) for key, found in sorted(groups.items()))

    @override
    def of_cause(
        self, cause: FailureCause, *, system: str | None, kind: JobKind | None, after: JobId, limit: int
    ) -> tuple[Job, ...]:
        found = (job for job in self._data.jobs.values() if job.failing_since and job.failure_cause is cause and job.id > after)
        return tuple(job for job in found if system in {None, job.system} and kind in {None, job.kind})[:limit]

    @override
    def make_due(self, kind: JobKind, *, now: datetime, failing_only: bool = False) -> int:
        jobs = self._data.jobs.values()
        waiting = [each for each in jobs if each.kind is kind and each.state in CLAIMABLE_STATES and each.due_at > now]
        if failing_only:
            asked = FailureCause.SERVICE_ASKS_TO_WAIT
            waiting = [each for each in waiting if each.failing_since is not None and each.failure_cause is not asked]
        elif kind in GIVING_WAY:
            waiting = [each for each in waiting if each.gives_way]
        self._data.jobs.update({job.id: replace(job, due_at=now) for job in waiting})
        self._made_due.update(job.kind for job in waiting)
        return len(waiting)

    @override
    def bring_forward(self, *, now: datetime, due_after: datetime, giving_way_after: datetime, leased_after: datetime) -> int:
        jobs = self._data.jobs.values()
        after = {False: due_after, True: giving_way_after}
        far = [each for each in jobs if each.state in CLAIMABLE_STATES and each.due_at > after[each.gives_way]]
        leased = [each for each in jobs if each.lease_until is not None and each.lease_until > leased_after]
        self._data.jobs.update({job.id: replace(job, due_at=now) for job in far})
        self._data.jobs.update({job.id: replace(self._data.jobs[job.id], lease_until=leased_after) for job in leased})
        return len(far)

    def _is_ours(self, job: Job) -> bool:
        there = self._data.jobs.get(job.id)
        return there is not None and there.fencing_token == job.fencing_token

    def _claimable(self, kinds: Iterable[JobKind], now: datetime, ordering_key: str | None = None) -> list[Job]:
        wanted = frozenset(kinds)
        jobs = self._data.jobs.values()
        if ordering_key is not None:
            jobs = [job for job in jobs if job.ordering_key == ordering_key]
        due = [job for job in jobs if job.due_at <= now and job.state in CLAIMABLE_STATES]
        keys = {job.ordering_key for job in due}
        blocking: dict[str, list[Job]] = {}  # once for all: a thousand orders have many thousand jobs
        for job in jobs if due else ():
            if job.ordering_key in keys and _is_blocking(job):
                blocking.setdefault(job.ordering_key, []).append(job)
        found = [job for job in due if job.kind in wanted and self._is_claimable(job, now, blocking)]
        return sorted(found, key=_turn)

    def _is_claimable(self, job: Job, now: datetime, blocking: Mapping[str, Sequence[Job]]) -> bool:
        if _is_leased(job, now):
            return False
        if job.kind in AT_LABORATORY_SYSTEM and self._data.key_values.get(pause_key(job.system)):
            return False
        others = (each for each in blocking.get(job.ordering_key, ()) if each.id != job.id)
        return not any(self._turn(each) < self._turn(job) or _is_leased(each, now) for each in others)

    def _turn(self, job: Job) -> tuple[JobId, JobId]:
        return self._data.places_taken.get(job.id, job.id), job.id


def _waiting_groups(found: Sequence[tuple[AlertKey, datetime, OrderKey | None, str | None]]) -> tuple[WaitingGroup, ...]:
    groups: dict[AlertKey, list[tuple[AlertKey, datetime, OrderKey | None, str | None]]] = {}
    for each in sorted(found, key=lambda each: each[1]):
        groups.setdefault(each[0], []).append(each)
    return tuple(
        WaitingGroup(key=key, count=len(members), since=members[0][1], order=members[0][2], reason=members[0][3])
        for key, members in groups.items()
    )


def _turn(job: Job) -> tuple[bool, datetime, JobId]:
    return job.gives_way, job.due_at, job.id


def _by_age(job: Job) -> tuple[datetime, JobId]:
    return job.first_due_at, job.id


def _failure_group(cause: FailureCause, system: str, kind: JobKind, found: Sequence[Job]) -> FailureGroup:
    tried = [job for job in found if job.is_failing]
    return FailureGroup(
        cause=cause,
        system=system,
        kind=kind,
        count=len(found),
        set_aside=len(found) - len(tried),
        in_review=sum(job.state is JobState.NEEDS_REVIEW for job in found),
        since=min(job.first_due_at for job in found),
        failing_since=min((job.failing_since for job in tried if job.failing_since), default=None),
        failures=max((job.failures for job in tried), default=0),
    )


def _is_blocking(job: Job) -> bool:
    return job.state in BLOCKING_STATES and not (job.state is JobState.NEEDS_REVIEW and job.kind in PASSED_IN_REVIEW)


def _is_leased(job: Job, now: datetime) -> bool:
    return job.lease_until is not None and job.lease_until > now


class MemoryCatalogueRepository(CatalogueRepository):
    """Imported catalogue versions."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, version: CatalogueVersion) -> bool:
        kept = self._data.catalogues
        damaged = [at for at, each in enumerate(kept) if each.version == version.version and each.content != version.content]
        for at in damaged:
            kept[at] = replace(kept[at], content=version.content)
        if kept and kept[-1].version == version.version:
            if version.by is not None and kept[-1].by is None:
                kept[-1] = replace(kept[-1], origin=version.origin, by=version.by)
                return True
            return bool(damaged)
        kept.append(version)
        return True

    @override
    def newest(self) -> CatalogueVersion | None:
        return self._data.catalogues[-1] if self._data.catalogues else None

    @override
    def active(self) -> tuple[str, datetime] | None:
        newest = self.newest()
        return None if newest is None else (newest.version, newest.since)

    @override
    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        versions = self._data.catalogues
        oldest = max((place for place, each in enumerate(versions) if each.since <= moment), default=0)
        return tuple(reversed(versions[oldest:]))


class MemoryTurnaroundNoticeRepository(TurnaroundNoticeRepository):
    """What staff announced."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, notice: TurnaroundNotice) -> None:
        self._data.turnaround_notices.append(notice)

    @override
    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        cleared = 0
        for place, each in enumerate(self._data.turnaround_notices):
            if each.item == item and contract in (None, each.contract) and each.end > now and each.lifted_at is None:
                self._data.turnaround_notices[place] = replace(each, lifted_at=now)
                cleared += 1
        return cleared

    @override
    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        return tuple(each for each in self._data.turnaround_notices if min(each.end, each.lifted_at or each.end) > moment)


class MemoryIssuedLabelRepository(IssuedLabelRepository):
    """Barcodes that were given out."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        self._data.label_ranges.setdefault((pattern, first), first)
        return {first: following for (other, first), following in sorted(self._data.label_ranges.items()) if other == pattern}

    @override
    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        self._data.label_ranges[pattern, first] = next_number

    @override
    def add_all(self, labels: Sequence[IssuedLabel]) -> Set[str]:
        return {each.label for each in labels if self._data.issued_labels.setdefault(each.label, each) is each}

    @override
    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        return tuple(each for each in self._data.issued_labels.values() if each.basket == basket)

    @override
    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        given = self._data.issued_labels
        unused = [each for name in set(barcodes) if (each := given.get(name)) and each.used_at is None]
        given.update({each.label: replace(each, used_at=at, order=order) for each in unused})
        return len(unused)


class MemoryApiTokenRepository(ApiTokenRepository):
    """Credentials of callers of the laboratory's API."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, token: ApiToken) -> None:
        if token.id in self._data.api_tokens:
            raise AlreadyExistsError(f"There is already an API token {token.id}; nothing was written.")
        self._data.api_tokens[token.id] = token

    @override
    def all(self) -> tuple[ApiToken, ...]:
        return tuple(sorted(self._data.api_tokens.values(), key=lambda each: (each.name, each.created_at, each.id)))

    @override
    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        tokens = self._data.api_tokens
        ended = [each for each in tokens.values() if id_or_name in (each.id, each.name) and each.revoked_at is None]
        tokens.update({each.id: replace(each, revoked_at=now) for each in ended})
        return len(ended)


class MemoryApiRefusalRepository(ApiRefusalRepository):
    """What the laboratory's API refused, one entry for each time that it was written."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, refusals: Sequence[ApiRefusals], *, now: datetime) -> None:
        kept = [each for each in self._data.api_refusals if period_start(each.first_at) >= now - KEPT]
        self._data.api_refusals = [*kept, *refusals]

    @override
    def since(self, moment: datetime) -> tuple[ApiRefusals, ...]:
        found: dict[tuple[RefusalReason, str], ApiRefusals] = {}
        for each in self._data.api_refusals:
            if period_start(each.first_at) > moment - PERIOD:
                before = found.get((each.reason, each.client), replace(each, count=0))
                first, last = min(before.first_at, each.first_at), max(before.last_at, each.last_at)
                summed = replace(each, count=before.count + each.count, first_at=first, last_at=last)
                found[each.reason, each.client] = summed
        return tuple(found[key] for key in sorted(found))


class MemoryOrderRepository(OrderRepository):
    """Orders, their lines and their labels."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        return frozenset(task_ids) & {order.task_id for order in self._data.orders.values()}

    @override
    def add(self, order: OrderRecord) -> None:
        if order.key in self._data.orders or self.existing((order.task_id,)):
            raise AlreadyExistsError("The order is stored already; nothing was written.")
        self._data.orders[order.key] = order

    @override
    def add_new(self, orders: Sequence[OrderRecord]) -> frozenset[OrderKey]:
        known = self.existing([order.task_id for order in orders])
        new = {order.key: order for order in orders if order.key not in self._data.orders and order.task_id not in known}
        self._data.orders.update(new)
        return frozenset(new)

    @override
    def get(self, key: OrderKey) -> OrderRecord:
        if key not in self._data.orders:
            raise StoreError(f"Unknown order {key}.")
        return self._data.orders[key]

    get_for_update = get

    @override
    def save(self, order: OrderRecord) -> None:
        self.get_for_update(order.key)
        self._data.orders[order.key] = order

    @override
    def work_orders(self, key: OrderKey) -> tuple[WorkOrder, ...]:
        return tuple(each for (order, _), each in sorted(self._data.work_orders.items()) if order == key)

    @override
    def waiting_lines(self) -> Mapping[str, int]:
        return Counter(each.adapter for each in self._data.lines.values() if each.adapter and each.state in WAITING_LINES)

    @override
    def save_work_order(self, work_order: WorkOrder) -> None:
        self.get_for_update(work_order.order)
        self._data.work_orders[work_order.order, work_order.adapter] = work_order

    @override
    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        return tuple(line for line in self._data.lines.values() if line.order == key)

    @override
    def expect_nothing_of(self, key: OrderKey) -> None:
        """Do nothing: looking costs nothing."""

    @override
    def lock(self, key: OrderKey) -> None:
        """Do nothing: one unit of work runs at a time."""

    @override
    def prefetch(self, keys: Collection[OrderKey]) -> None:
        """Do nothing: looking costs nothing."""

    @override
    def add_line(self, line: LineRecord) -> None:
        if line.key in self._data.lines:
            raise AlreadyExistsError("The line is stored already; nothing was written.")
        self.get_for_update(line.order)
        self._data.lines[line.key] = line

    @override
    def save_line(self, line: LineRecord) -> None:
        if line.key not in self._data.lines:
            raise StoreError(f"Unknown line {line.key}.")
        self._data.lines[line.key] = line

    @override
    def line(self, key: LineKey) -> LineRecord | None:
        return self._data.lines.get(key)

    @override
    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        if labels:
            self.get_for_update(key)
        others = [label for label in self._data.label_uses if label.order != key]
        self._data.label_uses = [*others, *dict.fromkeys(labels)]

    @override
    def lock_labels(self) -> None:
        """Do nothing: there is one unit of work at a time."""

    @override
    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        used = (label for label in self._data.label_uses if label.barcode in barcodes and label.order != except_order)
        lines = self._data.lines
        held = (label for label in used if label.line in lines and lines[label.line].state not in LABEL_RELEASING)
        return tuple(sorted(held, key=lambda label: label.barcode))

    @override
    def by_accession(self, accession: str, adapter: str) -> tuple[OrderKey, ...]:
        numbered = (*self._data.lines.values(), *self._data.work_orders.values())
        return self._newest_first({each.order for each in numbered if (each.accession, each.adapter) == (accession, adapter)})

    @override
    def by_barcode(self, barcode: str, adapter: str) -> tuple[OrderKey, ...]:
        lines = {key: line for key, line in self._data.lines.items() if line.adapter == adapter}
        used = [label for label in self._data.label_uses if label.barcode == barcode and label.line in lines]
        return self._newest_first({label.order for label in used if lines[label.line].state in AT_LABORATORY | WITHDRAWN_LINES})

    @override
    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        keys = sorted(key for key, order in self._data.orders.items() if order.state is not OrderState.CLOSED)
        return tuple(self._data.orders[key] for key in keys if after is None or key > after)[:limit]

    @override
    def ended_orders(self, task_ids: Collection[str]) -> tuple[OrderRecord, ...]:
        return tuple(order for order in self._closed() if order.task_id in task_ids and order.ended_as is not None)

    @override
    def orders_to_recheck(self, *, now: datetime, limit: int) -> tuple[OrderRecord, ...]:
        due = [order for order in self._closed() if order.recheck_at is not None and order.recheck_at <= now]
        return tuple(sorted(due, key=lambda order: (order.recheck_at, order.key))[:limit])

    @override
    def other_lines(
        self, keys: Collection[LineKey], procedure_requests: Collection[str], *, except_order: OrderKey
    ) -> tuple[LineRecord, ...]:
        return tuple(
            line
            for line in self._data.lines.values()
            if line.order != except_order
            and (line.key in keys or (line.procedure_request_id in procedure_requests and line.state not in UNDONE_LINES))
        )

    def _closed(self) -> list[OrderRecord]:
        return [order for order in self._data.orders.values() if order.state is OrderState.CLOSED]

    @override
    def held(self, cause: str, *, after: OrderKey | None, limit: int) -> tuple[OrderRecord, ...]:
        found = (each for each in self._data.orders.values() if each.state is OrderState.HELD and each.hold_cause == cause)
        return tuple(each for each in sorted(found, key=lambda each: each.key) if each.key > (after or ""))[:limit]

    @override
    def unassessed_since(self) -> datetime | None:
        return min((order.seen_at for order in self._data.orders.values() if order.state in ORDERS_BEFORE_HANDOVER), default=None)

    def _newest_first(self, keys: Iterable[OrderKey]) -> tuple[OrderKey, ...]:
        return tuple(sorted(sorted(keys), key=lambda key: self._data.orders[key].seen_at, reverse=True))


class MemoryPurge(Purge):
    """Deletes what is finished and old."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def identities(self, *, before: datetime, limit: int = 500) -> int:
        said = self._data.service_messages
        sealed = {*self._data.identities, *(order for order, _ in said.values())}
        keys = [key for key in self._finished_order_keys(before) if key in sealed][:limit]
        for key in keys:
            self._data.identities.pop(key, None)
        self._data.service_messages = {job: each for job, each in said.items() if each[0] not in keys}
        return len(keys) + self._purge_reported_patients(before, limit)

    def _purge_reported_patients(self, before: datetime, limit: int) -> int:
        said, reports = self._data.reported_patients, self._data.reports
        finished = [key for key in said if reports[key].state in FINISHED_REPORTS and reports[key].changed_at < before]
        for key in finished[:limit]:
            del said[key]
        return len(finished[:limit])

    @override
    def documents(self, *, before: datetime, limit: int = 500) -> int:
        unfinished = [each for each in self._data.reports.values() if each.state not in FINISHED_REPORTS]
        bodies = [body for each in unfinished for body in (each.body, each.outgoing_body or b"")]
        served = {
            each.document for each in self._data.hosted_documents.values() if each.expires_at is None or each.expires_at >= before
        }
        old = [name for name, (_, _, at) in self._data.documents.items() if at < before and name not in served]
        unused = [name for name in old if not any(f'"{name}"'.encode() in body for body in bodies)][:limit]
        for name in unused:
            del self._data.documents[name]
        return len(unused)

    @override
    def closed_orders(self, *, before: datetime, limit: int = 500) -> int:
        waiting = {each.order for each in self._data.reports.values() if each.state not in FINISHED_REPORTS}
        gone = set([key for key in self._finished_order_keys(before) if key not in waiting][:limit])
        self._delete_orders(gone)
        self._delete_jobs_and_reports(gone, before)
        self._delete_report_events(before)
        self._data.alerts = [each for each in self._data.alerts if each.closed_at is None or each.closed_at >= before]
        self._data.rejections = [each for each in self._data.rejections if each[1] not in gone and each[2] >= before]
        return len(gone)

    @override
    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        given = self._data.issued_labels
        old = [each for each in given.values() if each.basket is not None and each.issued_at < before][:limit]
        given.update({each.label: replace(each, basket=None) for each in old})
        return len(old)

    @override
    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        versions = self._data.catalogues
        in_force = max((place for place, each in enumerate(versions) if each.since <= before), default=0)
        gone = max(0, min(in_force, len(versions) - keep, limit))
        self._data.catalogues = versions[gone:]
        return gone

    def _finished_order_keys(self, before: datetime) -> list[str]:
        busy = {job.order for job in self._data.jobs.values() if job.state in OPEN_JOBS}
        old = (each for each in self._data.orders.values() if each.state is OrderState.CLOSED and each.changed_at < before)
        return [order.key for order in sorted(old, key=lambda order: order.changed_at) if order.key not in busy]

    def _delete_orders(self, gone: set[str]) -> None:
        data = self._data
        data.orders = {key: each for key, each in data.orders.items() if key not in gone}
        data.identities = {key: each for key, each in data.identities.items() if key not in gone}
        data.service_messages = {job: each for job, each in data.service_messages.items() if each[0] not in gone}
        data.lines = {key: each for key, each in data.lines.items() if each.order not in gone}
        data.work_orders = {key: each for key, each in data.work_orders.items() if each.order not in gone}
        data.uploads = {key: each for key, each in data.uploads.items() if each.order not in gone}
        data.hosted_documents = {key: each for key, each in data.hosted_documents.items() if each.order not in gone}
        data.label_uses = [each for each in data.label_uses if each.order not in gone]
        data.events = [each for each in data.events if each.order not in gone]

    def _delete_jobs_and_reports(self, gone: set[str], before: datetime) -> None:
        data = self._data
        old_jobs = {
            number
            for number, each in data.jobs.items()
            if each.order in gone or (each.order is None and each.state not in OPEN_JOBS and each.changed_at < before)
        }
        old_reports = {
            key
            for key, each in data.reports.items()
            if each.order in gone or (each.order is None and each.state in FINISHED_REPORTS and each.changed_at < before)
        }
        data.dedup_keys -= {data.jobs[number].dedup_key for number in old_jobs}
        data.jobs = {number: each for number, each in data.jobs.items() if number not in old_jobs}
        data.reports = {key: each for key, each in data.reports.items() if key not in old_reports}
        data.reported_patients = {key: each for key, each in data.reported_patients.items() if key not in old_reports}

    def _delete_report_events(self, before: datetime) -> None:
        """Delete events of reports without an order that are deleted by now."""
        data = self._data
        data.events = [
            each
            for each in data.events
            if each.order is not None or each.refused_message is not None or each.report in data.reports or each.at >= before
        ]


class MemoryReportRepository(ReportRepository):
    """Reports; kept in the order of arrival."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, report: ReportRecord) -> bool:
        if report.key in self._data.reports:
            return False
        self._data.last_report_sequence += 1
        self._data.reports[report.key] = replace(report, sequence=self._data.last_report_sequence)
        return True

    @override
    def get_for_update(self, key: ReportKey) -> ReportRecord:
        if key not in self._data.reports:
            raise StoreError(f"Unknown report {key}.")
        return self._data.reports[key]

    @override
    def find(self, source: str, message: str) -> ReportRecord | None:
        return next((each for each in self._data.reports.values() if (each.source, each.message) == (source, message)), None)

    @override
    def newest(self, source: str, report_id: str) -> ReportRecord | None:
        return max(self._about(source, report_id), key=lambda each: each.sequence, default=None)

    @override
    def orders_of(self, source: str, report_id: str) -> tuple[OrderKey, ...]:
        settled = (each for each in self._about(source, report_id) if each.order and each.state in REPORTS_OF_THEIR_ORDER)
        return tuple(dict.fromkeys(OrderKey(str(each.order)) for each in settled))

    @override
    def await_names(self, report: ReportKey, names: Iterable[str]) -> None:
        self._data.awaited_names |= {(name, report) for name in names}

    @override
    def awaiting(self, names: Collection[str]) -> tuple[ReportRecord, ...]:
        wanted = {report for name, report in self._data.awaited_names if name in names}
        found = (each for key, each in self._data.reports.items() if key in wanted and each.state is ReportState.UNMATCHED)
        return tuple(sorted(found, key=lambda each: each.sequence))

    def _about(self, source: str, report_id: str) -> list[ReportRecord]:
        return [each for each in self._data.reports.values() if (each.source, each.report_id) == (source, report_id)]

    @override
    def save(self, report: ReportRecord) -> None:
        self._data.reports[report.key] = replace(report, sequence=self.get_for_update(report.key).sequence)

    @override
    def versions(self, order: OrderKey, source: str, report_id: str) -> tuple[ReportRecord, ...]:
        wanted = (order, source, report_id)
        return tuple(each for each in self._data.reports.values() if (each.order, each.source, each.report_id) == wanted)

    @override
    def waiting(self, state: ReportState, hold_reason: HoldReason | None, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        found = (each for each in self.needing_operator() if (each.state, each.hold_reason) == (state, hold_reason))
        return tuple(each for each in found if each.sequence > after)[:limit]

    @override
    def delivered_of(self, order: OrderKey) -> tuple[ReportRecord, ...]:
        found = (each for each in self._data.reports.values() if each.state is ReportState.DELIVERED)
        return tuple(each for each in found if each.order == order)

    @override
    def delivered_between(self, since: datetime, until: datetime, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        found = (each for each in self._data.reports.values() if each.state is ReportState.DELIVERED and each.order is not None)
        return tuple(each for each in found if since <= each.changed_at <= until and each.sequence > after)[:limit]

    @override
    def needing_operator(self) -> tuple[ReportRecord, ...]:
        return tuple(report for report in self._data.reports.values() if report.state in REPORTS_NEEDING_OPERATOR)


class MemoryRefusedMessageRepository(RefusedMessageRepository):
    """Refused messages."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def get(self, key: RefusedKey) -> RefusedMessage | None:
        return self._data.refused_messages.get(key)

    @override
    def save(self, message: RefusedMessage) -> None:
        self._data.refused_messages[message.key] = message

    @override
    def list(
        self, *, source: str | None = None, states: Collection[RefusedState] = (), offset: int = 0, limit: int
    ) -> tuple[tuple[RefusedMessage, ...], int]:
        found = [
            each
            for each in sorted(self._data.refused_messages.values(), key=lambda each: each.key)
            if source in (None, each.source) and (not states or each.state in states)
        ]
        found.sort(key=lambda each: each.last_seen_at, reverse=True)
        return tuple(found[offset : offset + limit]), len(found)

    @override
    def waiting_counts(self) -> Mapping[str, int]:
        waiting = [each.source for each in self._data.refused_messages.values() if each.state is RefusedState.WAITING]
        return {source: waiting.count(source) for source in waiting}

    @override
    def added_since(self, source: str, since: datetime) -> tuple[int, int]:
        mine = [each for each in self._data.refused_messages.values() if each.source == source and each.first_seen_at >= since]
        return len(mine), sum(each.size or 0 for each in mine if each.is_kept)

    @override
    def events(self, key: RefusedKey) -> tuple[Event, ...]:
        return tuple(sorted((each for each in self._data.events if each.refused_message == key), key=lambda each: each.at))

    @override
    def save_content(self, key: RefusedKey, content: RefusedContent, *, at: datetime) -> None:
        del at
        self._data.refused_contents[key] = content

    @override
    def content(self, key: RefusedKey) -> RefusedContent | None:
        return self._data.refused_contents.get(key)

    @override
    def purge_content(self, key: RefusedKey) -> None:
        self._data.refused_contents.pop(key, None)

    @override
    def kept_before(self, before: datetime, *, limit: int) -> tuple[RefusedMessage, ...]:
        old = [each for each in self._data.refused_messages.values() if each.is_kept and each.last_seen_at < before]
        return tuple(sorted(old, key=lambda each: each.last_seen_at)[:limit])

    @override
    def purge_finished(self, *, before: datetime, limit: int = 500) -> int:
        ended = [each for each in self._data.refused_messages.values() if each.state is not RefusedState.WAITING]
        gone = [each.key for each in ended if each.changed_at < before][:limit]
        for key in gone:
            del self._data.refused_messages[key]
            self._data.refused_contents.pop(key, None)
        self._data.events = [each for each in self._data.events if each.refused_message not in gone]
        return len(gone)

    @override
    def accepted_since(self, source: str, report_id: str, since: datetime, *, except_message: str) -> datetime | None:
        about = [each for each in self._data.reports.values() if (each.source, each.report_id) == (source, report_id)]
        others = (each.received_at for each in about if each.message != except_message)
        return max((at for at in others if at > since), default=None)


class MemoryWorkerRepository(WorkerRepository):
    """Workers."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def save(self, worker: WorkerRecord) -> None:
        self._data.workers[worker.name] = worker

    @override
    def newest(self, *, limit: int = 100) -> tuple[WorkerRecord, ...]:
        named = sorted(self._data.workers.values(), key=lambda each: each.name)
        return tuple(sorted(named, key=lambda each: each.beat_at, reverse=True)[:limit])

    @override
    def purge(self, *, before: datetime) -> int:
        gone = [each.name for each in self._data.workers.values() if each.beat_at < before]
        for name in gone:
            del self._data.workers[name]
        return len(gone)


class MemoryLeaseRepository(LeaseRepository):
    """Leases."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def acquire(self, name: str, owner: str, *, now: datetime, lease: timedelta) -> bool:
        held = self._data.leases.get(name)
        if held is not None and held[0] != owner and held[1] > now:
            return False
        self._data.leases[name] = owner, now + lease
        return True

    @override
    def release(self, name: str, owner: str) -> None:
        if name in self._data.leases and self._data.leases[name][0] == owner:
            del self._data.leases[name]

    @override
    def release_all(self, owner: str) -> None:
        for name in [each for each, held in self._data.leases.items() if held[0] == owner]:
            del self._data.leases[name]


class MemoryProgramRepository(ProgramRepository):
    """Programs; the schema is always their own."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def save(self, program: RunningProgram) -> None:
        self._data.programs[program.name] = program

    @override
    def remove(self, name: str) -> None:
        self._data.programs.pop(name, None)

    @override
    def all(self) -> tuple[RunningProgram, ...]:
        return tuple(self._data.programs[name] for name in sorted(self._data.programs))

    @override
    def purge(self, *, before: datetime) -> None:
        for each in self.all():
            if each.beat_at < before:
                self.remove(each.name)

    @override
    def schema(self) -> SchemaVersions:
        return SchemaVersions("0001", "0001")


T = TypeVar("T")


class MemoryAuditRepository(AuditRepository):
    """The audit, without its chain."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def add(self, entry: AuditEntry) -> None:
        self._data.audit.append(entry)

    @override
    def digest_settings(self, values: Mapping[str, str]) -> Mapping[str, str]:
        return {name: hashlib.sha256(value.encode()).hexdigest() for name, value in values.items()}

    @override
    def purge(self, *, before: datetime, limit: int = 500) -> int:
        old = 0
        while old < min(limit, len(self._data.audit) - 1) and self._data.audit[old].at < before:
            old += 1
        self._data.audit = self._data.audit[old:]
        return old


class MemoryErasure(Erasure):
    """Erasure, as far as tests of the workflow look."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @override
    def count_results(self, key: OrderKey) -> tuple[int, int]:
        states = [each.state for each in self._data.reports.values() if each.order == key]
        return sum(state not in FINISHED_REPORTS for state in states), len(states)

    @override
    def order(self, key: OrderKey, empty_message: Callable[[bytes], bytes], *, at: datetime) -> int:
        del at
        self._data.identities.pop(key, None)
        self._data.events = [each for each in self._data.events if each.order != key]
        for report in [each.key for each in self._data.reports.values() if each.order == key]:
            self.report(report, empty_message)
        return 0

    @override
    def report(self, key: ReportKey, empty_message: Callable[[bytes], bytes]) -> None:
        known = self._data.reports[key]
        self._data.reports[key] = replace(known, body=empty_message(known.body), outgoing_body=None, reason=None)
        self._data.reported_patients.pop(key, None)

    @override
    def refused_message(self, key: RefusedKey) -> None:
        self._data.refused_contents.pop(key, None)
        self._data.refused_messages[key] = replace(self._data.refused_messages[key], is_kept=False)


class MemorySearchIndex(SearchIndex):
    """Nothing lacks: every search looks at everything."""

    @override
    def lacking_terms(self, *, after: OrderKey, limit: int) -> SearchPortion:
        return SearchPortion((), None)

    @override
    def lacking_digests(self, *, after: OrderKey, limit: int) -> SearchPortion:
        return SearchPortion((), None)

    @override
    def add_terms(self, orders: Collection[OrderKey]) -> None:
        raise NotImplementedError


class MemoryUnitOfWork(UnitOfWork):
    """One transaction: a copy of the data, and the repositories on it."""

    def __init__(self, data: MemoryData, on_commit: Callable[[MemoryData], None]) -> None:
        self._data = data
        self._on_commit = on_commit
        self.jobs_due: set[JobKind] = set()
        """Kinds of jobs that are due with what was committed."""
        self.orders = MemoryOrderRepository(data)
        self.jobs = MemoryJobRepository(data)
        self.reports = MemoryReportRepository(data)
        self.uploads = MemoryUploadRepository(data)
        self.vault = MemoryVault(data)
        self.hosted_documents = MemoryHostedDocumentRepository(data)
        self.events = MemoryEventRepository(data)
        self.alerts = MemoryAlertRepository(data)
        self.notifications = MemoryNotificationRepository(data)
        self.rejections = MemoryRejectionRepository(data)
        self.refused_messages = MemoryRefusedMessageRepository(data)
        self.key_values = MemoryKeyValueRepository(data)
        self.oauth_tokens = MemoryOAuthTokenRepository(data)
        self.users = MemoryUserRepository(data)
        self.status_sessions = MemorySessionRepository(data)
        self.activity = MemoryActivityRepository(data)
        self.catalogues = MemoryCatalogueRepository(data)
        self.turnaround_notices = MemoryTurnaroundNoticeRepository(data)
        self.issued_labels = MemoryIssuedLabelRepository(data)
        self.api_tokens = MemoryApiTokenRepository(data)
        self.api_refusals = MemoryApiRefusalRepository(data)
        self.workers = MemoryWorkerRepository(data)
        self.programs = MemoryProgramRepository(data)
        self.leases = MemoryLeaseRepository(data)
        self.purge = MemoryPurge(data)
        self.audit = MemoryAuditRepository(data)
        self.erasure = MemoryErasure(data)
        self.search = MemorySearchIndex()

    @override
    def waiting_groups(self) -> tuple[WaitingGroup, ...]:
        orders, lines = self._data.orders.values(), self._data.lines.values()
        found: list[tuple[AlertKey, datetime | None, OrderKey | None, str | None]] = [
            (AlertKey(ConditionId.ORDERS_HELD, each.hold_cause or ""), each.held_since, each.key, each.reason)
            for each in orders
            if each.state is OrderState.HELD
        ]
        found += [
            (AlertKey(ConditionId.LINES_HELD), each.changed_at, each.order, None)
            for each in lines
            if each.state is LineState.HELD
        ]
        found += [
            (AlertKey(ConditionId.ORDERS_PART_WAITS, each.adapter), each.waits_since, each.order, None)
            for each in self._data.work_orders.values()
        ]
        found += [(AlertKey(ConditionId.ORDERS_TASK_UNREADABLE), each.task_unreadable_since, each.key, None) for each in orders]
        found += [(AlertKey(ConditionId.LINES_TASK_UNREADABLE), each.task_unreadable_since, each.order, None) for each in lines]
        found += [
            (result_alert_key(each.state, each.hold_reason), each.received_at, None, None)
            for each in self.reports.needing_operator()
        ]
        found += [
            (AlertKey(ConditionId.LIS_REFUSED_MESSAGES, each.source), each.first_seen_at, None, None)
            for each in self._data.refused_messages.values()
            if each.state is RefusedState.WAITING
        ]
        return _waiting_groups([(key, since, order, reason) for key, since, order, reason in found if since is not None])

    @override
    def commit(self) -> None:
        self._on_commit(self._data.copy())
        self.jobs_due |= self.jobs.made_due

    @override
    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing is ever locked


def _refuse_commit(_: MemoryData) -> None:
    raise StoreError("a unit of work that only reads cannot commit")


class MemoryStore(Store):
    """A store that lives as long as the process."""

    def __init__(self) -> None:
        self._data = MemoryData(key_values={"instance": uuid.uuid4().hex})
        self._lock = threading.Lock()
        self.on_jobs_due = lambda _: None
        self.health = StoreHealth()

    @override
    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        with self._lock:
            uow = MemoryUnitOfWork(self._data.copy(), self._replace_data)
            try:
                return work(uow)
            finally:
                if uow.jobs_due:
                    self.on_jobs_due(frozenset(uow.jobs_due))

    @override
    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        with self._lock:
            return work(MemoryUnitOfWork(self._data.copy(), _refuse_commit))

    @override
    async def reclaim_space(self) -> int:
        return 0

    @override
    async def verify(self) -> None:
        """Find it in order: nobody can exchange it."""

    @override
    async def probe(self) -> None:
        await self.run(lambda uow: uow.commit())

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _replace_data(self, data: MemoryData) -> None:
        self._data = data
