"""The smaller books, in memory: uploads, vault, alerts and notes, sign-in, users.

What a `MemoryStore` holds: plain dictionaries of frozen records.

The outbox, in memory.

Catalogues, notices, labels and API tokens, in memory.

Orders, their lines and their labels, in memory.

Forgetting on time, in memory.

What laboratory systems have reported, in memory.

The store in memory: the port's behaviour without a database, for tests of steps and of adapters.

It passes the same contract suite as SQLite and PostgreSQL. One unit of work runs at a time, on a copy; `commit` puts the copy in
the place of the original. Nothing survives the process, and nothing is encrypted.
"""

from __future__ import annotations

import copy
import hashlib
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from lab_agent import exact_json
from lab_agent.domain.catalogue_records import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.domain.ids import JobId, LineKey, OrderKey, ReportKey
from lab_agent.domain.records import (
    Alert,
    Event,
    HostedDocument,
    Job,
    JobKind,
    LabelUse,
    LineRecord,
    NewJob,
    OrderRecord,
    ReportRecord,
    StoredToken,
    UploadRecord,
)
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
    WITHDRAWN_LINES,
    JobState,
    OrderState,
)
from lab_agent.errors import AlreadyExistsError, LeaseLostError, StoreError
from lab_agent.ports.repositories import UnitOfWork, UserRecord


@dataclass(slots=True)
class MemoryData:
    """Everything in the store; a copy of it shares the frozen records and nothing else."""

    key_values: dict[str, str]
    orders: dict[str, OrderRecord] = field(default_factory=dict)
    lines: dict[str, LineRecord] = field(default_factory=dict)
    label_uses: list[LabelUse] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    dedup_keys: set[str] = field(default_factory=set)
    reports: dict[str, ReportRecord] = field(default_factory=dict)
    uploads: dict[str, UploadRecord] = field(default_factory=dict)
    identities: dict[str, bytes] = field(default_factory=dict)
    documents: dict[str, tuple[bytes, str, datetime]] = field(default_factory=dict)
    hosted_documents: dict[str, HostedDocument] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rejections: list[tuple[str, str, datetime]] = field(default_factory=list)
    oauth_tokens: dict[int, StoredToken] = field(default_factory=dict)
    refresh_lease: tuple[str, datetime] | None = None
    users: dict[str, UserRecord] = field(default_factory=dict)
    catalogues: list[CatalogueVersion] = field(default_factory=list)
    turnaround_notices: list[TurnaroundNotice] = field(default_factory=list)
    label_ranges: dict[tuple[str, int], int] = field(default_factory=dict)
    issued_labels: dict[str, IssuedLabel] = field(default_factory=dict)
    api_tokens: dict[str, ApiToken] = field(default_factory=dict)
    last_job_id: int = 0
    last_report_sequence: int = 0

    def copy(self) -> MemoryData:
        """Give a copy that can be changed without changing this one."""
        return MemoryData(**{each.name: copy.copy(getattr(self, each.name)) for each in fields(self)})


class MemoryUploadRepository:
    """Which resources of ours are on the service."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def get(self, identifier: str) -> UploadRecord | None:
        """What is known of the resource with this identifier value."""
        return self._data.uploads.get(identifier)

    def save(self, upload: UploadRecord) -> None:
        """Write or replace what is known."""
        self._data.uploads[upload.identifier] = upload


class MemoryVault:
    """Identification data and documents; in memory alone, so not encrypted."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def save_identity(self, order: OrderKey, identity: bytes, *, at: datetime) -> None:
        """Keep (or replace) the identification data of an order."""
        del at
        self._data.identities[order] = identity

    def identity(self, order: OrderKey) -> bytes | None:
        """The identification data of an order; None once it was purged."""
        return self._data.identities.get(order)

    def save_document(self, content: bytes, content_type: str, *, at: datetime) -> str:
        """Keep a document, or keep it for longer; gives its id (the same content has the same id)."""
        name = hashlib.sha256(content).hexdigest()
        self._data.documents[name] = (content, content_type, at)
        return name

    def document(self, document: str) -> tuple[bytes, str] | None:
        """A document and its content type; None once it was purged."""
        found = self._data.documents.get(document)
        return None if found is None else found[:2]


class MemoryHostedDocumentRepository:
    """Documents that our own API serves."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def save(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        self._data.hosted_documents[document.address] = document

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        return self._data.hosted_documents.get(address)


class MemoryEventRepository:
    """Lines of timelines."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, event: Event) -> None:
        """Add a line to an order's timeline, to a report's history, or to both."""
        self._data.events.append(event)


class MemoryAlertRepository:
    """Alerts."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def open(self, alert: Alert) -> bool:
        """Open an alert. False if one of that key is open already; its text becomes this one's."""
        index = self._open_alert_index(alert.key)
        if index is None:
            self._data.alerts.append(alert)
            return True
        self._data.alerts[index] = replace(self._data.alerts[index], text=alert.text)
        return False

    def close(self, key: str, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        index = self._open_alert_index(key)
        if index is None:
            return False
        self._data.alerts[index] = replace(self._data.alerts[index], closed_at=now)
        return True

    def _open_alert_index(self, key: str) -> int | None:
        return next(
            (index for index, alert in enumerate(self._data.alerts) if alert.key == key and alert.closed_at is None), None
        )


class MemoryRejectionRepository:
    """Which rule rejected which order."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Record that a rule rejected a line of an order."""
        self._data.rejections.append((rule, order, at))

    def count_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule has rejected since then."""
        return len({order for name, order, at in self._data.rejections if name == rule and at >= since})


class MemoryKeyValueRepository:
    """Single values."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def get(self, key: str) -> str | None:
        """Give the value of a key; None if it was never set."""
        return self._data.key_values.get(key)

    def set(self, key: str, value: str) -> None:
        """Set the value of a key."""
        self._data.key_values[key] = value


class MemoryOAuthTokenRepository:
    """Our sign-in at the service."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def current(self) -> StoredToken | None:
        """The newest generation."""
        return self._data.oauth_tokens[max(self._data.oauth_tokens)] if self._data.oauth_tokens else None

    def add(self, token: StoredToken) -> None:
        """Store the next generation. Raises `LeaseLostError` if that generation (or a newer one) is there already."""
        if self._data.oauth_tokens and max(self._data.oauth_tokens) >= token.generation:
            raise LeaseLostError("This generation of the sign-in, or a newer one, is stored already; nothing was written.")
        self._data.oauth_tokens[token.generation] = token

    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take the right to refresh, for one process at a time. False while another holds it."""
        held = self._data.refresh_lease
        if held is not None and held[0] != owner and held[1] > now:
            return False
        self._data.refresh_lease = (owner, now + lease)
        return True

    def release_refresh_lease(self, owner: str) -> None:
        """Give the right to refresh back; harmless where another holds it by now."""
        if self._data.refresh_lease is not None and self._data.refresh_lease[0] == owner:
            self._data.refresh_lease = None


class MemoryUserRepository:
    """Users of the status page."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, user: UserRecord) -> None:
        """Write a new user. Raises `AlreadyKnownError`."""
        if user.name in self._data.users:
            raise AlreadyExistsError(f"There is a user {user.name} already; nothing was written.")
        self._data.users[user.name] = user

    def get(self, name: str) -> UserRecord | None:
        """One user."""
        return self._data.users.get(name)

    def save(self, user: UserRecord) -> None:
        """Write a changed user. Raises `StoreError` if unknown."""
        if user.name not in self._data.users:
            raise StoreError(f"There is no user {user.name}.")
        self._data.users[user.name] = user

    def remove(self, name: str) -> bool:
        """Remove a user. False if there is none of that name."""
        return self._data.users.pop(name, None) is not None

    def all(self) -> tuple[UserRecord, ...]:
        """Every user, by name."""
        return tuple(self._data.users[name] for name in sorted(self._data.users))


class MemoryJobRepository:
    """The outbox."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, job: NewJob) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
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
            created_at=born,
            changed_at=born,
        )
        return True

    def claim(self, kinds: Collection[JobKind], *, owner: str, now: datetime, lease: timedelta, limit: int) -> tuple[Job, ...]:
        """Take up to `limit` effects that are due, the first open one of each lane, longest due first."""
        self._expire_leases(now)
        found = [job for job in self._data.jobs.values() if job.kind in kinds and self._is_claimable(job, now)]
        found.sort(key=lambda job: (job.due_at, job.id))
        claimed = tuple(job.claim(owner, now, lease) for job in found[: max(limit, 0)])
        self._data.jobs.update({job.id: job for job in claimed})
        return claimed

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        there = self._data.jobs.get(job.id)
        if there is None or there.fencing_token != job.fencing_token or there.lease_until is None:
            raise LeaseLostError()
        self._data.jobs[job.id] = replace(there, lease_until=now + lease)

    def save(self, job: Job) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        there = self._data.jobs.get(job.id)
        if there is None or there.fencing_token != job.fencing_token:
            raise LeaseLostError()
        self._data.jobs[job.id] = replace(job, payload=exact_json.loads(exact_json.dumps(job.payload)))

    def get(self, job: JobId) -> Job | None:
        """One effect."""
        return self._data.jobs.get(job)

    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        """The effects of an order, oldest first."""
        ours = (job for job in self._data.jobs.values() if job.order == order)
        return tuple(job for job in ours if not open_only or job.state in OPEN_JOBS)

    def needing_operator(self) -> tuple[Job, ...]:
        """Effects that wait for a person (parked, or to be reviewed), oldest first."""
        return tuple(job for job in self._data.jobs.values() if job.state in JOBS_NEEDING_OPERATOR)

    def make_due(self, kind: JobKind, *, now: datetime) -> int:
        """Make waiting effects of a kind (due, or to be looked at, in the future) due now; their number."""
        jobs = self._data.jobs.values()
        waiting = [each for each in jobs if each.kind is kind and each.state in CLAIMABLE_STATES and each.due_at > now]
        self._data.jobs.update({job.id: replace(job, due_at=now) for job in waiting})
        return len(waiting)

    def _expire_leases(self, now: datetime) -> None:
        for job in tuple(self._data.jobs.values()):
            if job.state is JobState.IN_FLIGHT and not _is_leased(job, now):
                self._data.jobs[job.id] = job.lease_expired(now)

    def _is_claimable(self, job: Job, now: datetime) -> bool:
        if job.state not in CLAIMABLE_STATES or job.due_at > now or _is_leased(job, now):
            return False
        lane = (each for each in self._data.jobs.values() if each.ordering_key == job.ordering_key and each.id != job.id)
        return not any(each.state in BLOCKING_STATES and (each.id < job.id or _is_leased(each, now)) for each in lane)


def _is_leased(job: Job, now: datetime) -> bool:
    return job.lease_until is not None and job.lease_until > now


class MemoryCatalogueRepository:
    """Imported catalogue versions."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, version: CatalogueVersion) -> bool:
        """Put a version in force, and heal damaged copies of it. False where nothing was to do."""
        kept = self._data.catalogues
        damaged = [at for at, each in enumerate(kept) if each.version == version.version and each.content != version.content]
        for at in damaged:
            kept[at] = replace(kept[at], content=version.content)
        if kept and kept[-1].version == version.version:
            return bool(damaged)
        kept.append(version)
        return True

    def newest(self) -> CatalogueVersion | None:
        """The version in force."""
        return self._data.catalogues[-1] if self._data.catalogues else None

    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was in force at that moment or later, newest first."""
        versions = self._data.catalogues
        oldest = max((place for place, each in enumerate(versions) if each.since <= moment), default=0)
        return tuple(reversed(versions[oldest:]))


class MemoryTurnaroundNoticeRepository:
    """What staff announced."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, notice: TurnaroundNotice) -> None:
        """Write a notice."""
        self._data.turnaround_notices.append(notice)

    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        """End the notices of an item that are not over."""
        cleared = 0
        for place, each in enumerate(self._data.turnaround_notices):
            if each.item == item and contract in (None, each.contract) and each.end > now and each.lifted_at is None:
                self._data.turnaround_notices[place] = replace(each, lifted_at=now)
                cleared += 1
        return cleared

    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        """Notices that were in force at that moment or later."""
        return tuple(each for each in self._data.turnaround_notices if min(each.end, each.lifted_at or each.end) > moment)


class MemoryIssuedLabelRepository:
    """Barcodes that were given out."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        """Give how far each range of a pattern was given: one unit of work runs at a time."""
        self._data.label_ranges.setdefault((pattern, first), first)
        return {first: following for (other, first), following in sorted(self._data.label_ranges.items()) if other == pattern}

    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        """Set the next number of a range that we hold."""
        self._data.label_ranges[pattern, first] = next_number

    def add(self, label: IssuedLabel) -> bool:
        """Write a label. False where that barcode was given before."""
        return self._data.issued_labels.setdefault(label.label, label) is label

    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        """The labels of a basket, in the order in which they were given."""
        return tuple(each for each in self._data.issued_labels.values() if each.basket == basket)

    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order."""
        given = self._data.issued_labels
        unused = [each for name in set(barcodes) if (each := given.get(name)) and each.used_at is None]
        given.update({each.label: replace(each, used_at=at, order=order) for each in unused})
        return len(unused)


class MemoryApiTokenRepository:
    """Credentials of callers of the laboratory's API."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, token: ApiToken) -> None:
        """Write a new one. Raises `AlreadyKnownError`."""
        if token.id in self._data.api_tokens:
            raise AlreadyExistsError(f"There is an API token {token.id} already; nothing was written.")
        self._data.api_tokens[token.id] = token

    def all(self) -> tuple[ApiToken, ...]:
        """Every one, by name and time."""
        return tuple(sorted(self._data.api_tokens.values(), key=lambda each: (each.name, each.created_at, each.id)))

    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        """End those of this id or name that are not revoked yet; their number."""
        tokens = self._data.api_tokens
        ended = [each for each in tokens.values() if id_or_name in (each.id, each.name) and each.revoked_at is None]
        tokens.update({each.id: replace(each, revoked_at=now) for each in ended})
        return len(ended)


class MemoryOrderRepository:
    """Orders, their lines and their labels."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        """Which of these order-level Tasks are in the journal."""
        return frozenset(task_ids) & {order.task_id for order in self._data.orders.values()}

    def add(self, order: OrderRecord) -> None:
        """Write a new order. Raises `AlreadyKnownError`."""
        if order.key in self._data.orders or self.existing((order.task_id,)):
            raise AlreadyExistsError("The order is in the journal already; nothing was written.")
        self._data.orders[order.key] = order

    def get_for_update(self, key: OrderKey) -> OrderRecord:
        """Read an order. Raises `StoreError` if unknown."""
        if key not in self._data.orders:
            raise StoreError(f"No order {key} is in the journal.")
        return self._data.orders[key]

    def save(self, order: OrderRecord) -> None:
        """Write a changed order. Raises `StoreError` if unknown."""
        self.get_for_update(order.key)
        self._data.orders[order.key] = order

    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        """The order's lines, in the order in which they were added."""
        return tuple(line for line in self._data.lines.values() if line.order == key)

    def add_line(self, line: LineRecord) -> None:
        """Write a new line. Raises `AlreadyKnownError`, and `StoreError` if its order is unknown."""
        if line.key in self._data.lines:
            raise AlreadyExistsError("The line is in the journal already; nothing was written.")
        self.get_for_update(line.order)
        self._data.lines[line.key] = line

    def save_line(self, line: LineRecord) -> None:
        """Write a changed line. Raises `StoreError` if unknown."""
        if line.key not in self._data.lines:
            raise StoreError(f"No line {line.key} is in the journal.")
        self._data.lines[line.key] = line

    def line(self, key: LineKey) -> LineRecord | None:
        """One line."""
        return self._data.lines.get(key)

    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        """Replace the labels of an order. Raises `StoreError` if it is unknown."""
        if labels:
            self.get_for_update(key)
        others = [label for label in self._data.label_uses if label.order != key]
        self._data.label_uses = [*others, *dict.fromkeys(labels)]

    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        """Uses of these barcodes by lines of other orders that are not refused or withdrawn."""
        used = (label for label in self._data.label_uses if label.barcode in barcodes and label.order != except_order)
        lines = self._data.lines
        held = (label for label in used if label.line in lines and lines[label.line].state not in LABEL_RELEASING)
        return tuple(sorted(held, key=lambda label: label.barcode))

    def by_accession(self, accession: str) -> tuple[OrderKey, ...]:
        """Orders that carry this accession, themselves or on a line; newest first."""
        on_lines = {line.order for line in self._data.lines.values() if line.accession == accession}
        return self._newest_first(on_lines | {order.key for order in self._data.orders.values() if order.accession == accession})

    def by_barcode(self, barcode: str) -> tuple[OrderKey, ...]:
        """Orders whose accepted lines use this label, newest first; where there is none, those whose withdrawn lines used it."""
        lines = self._data.lines
        used = [label for label in self._data.label_uses if label.barcode == barcode and label.line in lines]
        taken, gone = (
            {label.order for label in used if lines[label.line].state in states} for states in (AT_LABORATORY, WITHDRAWN_LINES)
        )
        return self._newest_first(taken or gone)

    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        """Orders that are not closed, by key."""
        keys = sorted(key for key, order in self._data.orders.items() if order.state is not OrderState.CLOSED)
        return tuple(self._data.orders[key] for key in keys if after is None or key > after)[:limit]

    def unassessed_since(self) -> datetime | None:
        """When the oldest order was seen that is still to be judged."""
        return min((order.seen_at for order in self._data.orders.values() if order.state in ORDERS_BEFORE_HANDOVER), default=None)

    def _newest_first(self, keys: Iterable[OrderKey]) -> tuple[OrderKey, ...]:
        return tuple(sorted(sorted(keys), key=lambda key: self._data.orders[key].seen_at, reverse=True))


class MemoryPurge:
    """Takes what is finished and old from the shelf."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Forget the identification data of orders that closed before then and have no open effect."""
        keys = [key for key in self._finished_order_keys(before) if key in self._data.identities][:limit]
        for key in keys:
            del self._data.identities[key]
        return len(keys)

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Forget documents kept since before then that no unfinished report names and that are not served (any more)."""
        bodies = [each.body for each in self._data.reports.values() if each.state not in FINISHED_REPORTS]
        served = {
            each.document for each in self._data.hosted_documents.values() if each.expires_at is None or each.expires_at >= before
        }
        old = [name for name, (_, _, at) in self._data.documents.items() if at < before and name not in served]
        unused = [name for name in old if not any(f'"{name}"'.encode() in body for body in bodies)][:limit]
        for name in unused:
            del self._data.documents[name]
        return len(unused)

    def closed_orders(self, *, before: datetime, limit: int = 500) -> int:
        """Forget all about orders that are finished since before then, and what is finished and belongs to no order."""
        waiting = {each.order for each in self._data.reports.values() if each.state not in FINISHED_REPORTS}
        gone = set([key for key in self._finished_order_keys(before) if key not in waiting][:limit])
        self._delete_orders(gone)
        self._delete_jobs_and_reports(gone, before)
        self._delete_report_events(before)
        self._data.alerts = [each for each in self._data.alerts if each.closed_at is None or each.closed_at >= before]
        self._data.rejections = [each for each in self._data.rejections if each[1] not in gone and each[2] >= before]
        return len(gone)

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were given before then; the barcodes stay."""
        given = self._data.issued_labels
        old = [each for each in given.values() if each.basket is not None and each.issued_at < before][:limit]
        given.update({each.label: replace(each, basket=None) for each in old})
        return len(old)

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Forget catalogue versions that were replaced before then, but for the newest `keep`."""
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
        shelf = self._data
        shelf.orders = {key: each for key, each in shelf.orders.items() if key not in gone}
        shelf.identities = {key: each for key, each in shelf.identities.items() if key not in gone}
        shelf.lines = {key: each for key, each in shelf.lines.items() if each.order not in gone}
        shelf.uploads = {key: each for key, each in shelf.uploads.items() if each.order not in gone}
        shelf.hosted_documents = {key: each for key, each in shelf.hosted_documents.items() if each.order not in gone}
        shelf.label_uses = [each for each in shelf.label_uses if each.order not in gone]
        shelf.events = [each for each in shelf.events if each.order not in gone]

    def _delete_jobs_and_reports(self, gone: set[str], before: datetime) -> None:
        shelf = self._data
        old_effects = {
            number
            for number, each in shelf.jobs.items()
            if each.order in gone or (each.order is None and each.state not in OPEN_JOBS and each.changed_at < before)
        }
        old_reports = {
            key
            for key, each in shelf.reports.items()
            if each.order in gone or (each.order is None and each.state in FINISHED_REPORTS and each.changed_at < before)
        }
        shelf.dedup_keys -= {shelf.jobs[number].dedup_key for number in old_effects}
        shelf.jobs = {number: each for number, each in shelf.jobs.items() if number not in old_effects}
        shelf.reports = {key: each for key, each in shelf.reports.items() if key not in old_reports}

    def _delete_report_events(self, before: datetime) -> None:
        """Forget what was told of reports without an order that are forgotten by now."""
        shelf = self._data
        shelf.events = [
            each for each in shelf.events if each.order is not None or each.report in shelf.reports or each.at >= before
        ]


class MemoryReportRepository:
    """Reports; kept in the order of arrival."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        if report.key in self._data.reports:
            return False
        self._data.last_report_sequence += 1
        self._data.reports[report.key] = replace(report, sequence=self._data.last_report_sequence)
        return True

    def get_for_update(self, key: ReportKey) -> ReportRecord:
        """Read a report. Raises `StoreError` if unknown."""
        if key not in self._data.reports:
            raise StoreError(f"No report {key} is in the journal.")
        return self._data.reports[key]

    def exists(self, source: str, message: str) -> bool:
        """Whether a message of that adapter was kept."""
        return any(report.source == source and report.message == message for report in self._data.reports.values())

    def save(self, report: ReportRecord) -> None:
        """Write a changed report; its sequence stays. Raises `StoreError` if unknown."""
        self._data.reports[report.key] = replace(report, sequence=self.get_for_update(report.key).sequence)

    def versions(self, order: OrderKey, report_id: str) -> tuple[ReportRecord, ...]:
        """All messages of one report of one order, by sequence."""
        return tuple(each for each in self._data.reports.values() if each.order == order and each.report_id == report_id)

    def needing_operator(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        return tuple(report for report in self._data.reports.values() if report.state in REPORTS_NEEDING_OPERATOR)


T = TypeVar("T")


class MemoryUnitOfWork:
    """One transaction: a copy of the shelf, and the books on it."""

    def __init__(self, data: MemoryData, on_commit: Callable[[MemoryData], None]) -> None:
        self._data = data
        self._on_commit = on_commit
        self.orders = MemoryOrderRepository(data)
        self.jobs = MemoryJobRepository(data)
        self.reports = MemoryReportRepository(data)
        self.uploads = MemoryUploadRepository(data)
        self.vault = MemoryVault(data)
        self.hosted_documents = MemoryHostedDocumentRepository(data)
        self.events = MemoryEventRepository(data)
        self.alerts = MemoryAlertRepository(data)
        self.rejections = MemoryRejectionRepository(data)
        self.key_values = MemoryKeyValueRepository(data)
        self.oauth_tokens = MemoryOAuthTokenRepository(data)
        self.users = MemoryUserRepository(data)
        self.catalogues = MemoryCatalogueRepository(data)
        self.turnaround_notices = MemoryTurnaroundNoticeRepository(data)
        self.issued_labels = MemoryIssuedLabelRepository(data)
        self.api_tokens = MemoryApiTokenRepository(data)
        self.purge = MemoryPurge(data)

    def commit(self) -> None:
        """Make it so."""
        self._on_commit(self._data.copy())


class MemoryStore:
    """A store that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._data = MemoryData(key_values={"instance": uuid.uuid4().hex})
        self._lock = threading.Lock()

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in a unit of work. What it did not commit is rolled back."""
        with self._lock:
            return work(MemoryUnitOfWork(self._data.copy(), self._replace_data))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _replace_data(self, data: MemoryData) -> None:
        self._data = data
