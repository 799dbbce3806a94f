"""The store, as the steps see it: a unit of work that rolls back unless `commit` was said, and the books within it.

A unit of work is synchronous and runs in one thread hop; nothing inside it waits for a neighbour.

The books of the store about what the laboratory offers: catalogues, notices, labels, and who may call its API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar

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


class CatalogueRepository(Protocol):
    """Imported catalogue versions."""

    def add(self, version: CatalogueVersion) -> bool:
        """Put a version in force. False, and nothing is written, where the version in force is the same, byte for byte.

        Where the same version is kept with other bytes, they have been damaged: they are replaced, and the rest of its row stays.
        """
        ...

    def newest(self) -> CatalogueVersion | None:
        """The version in force; None if none was ever imported."""
        ...

    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was in force at that moment or later, newest first."""
        ...


class TurnaroundNoticeRepository(Protocol):
    """What staff announced: stopped and delayed tests."""

    def add(self, notice: TurnaroundNotice) -> None:
        """Write a notice."""
        ...

    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        """End the notices of an item that are not over: of that contract alone, or of every one. Gives their number."""
        ...

    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        """Notices that were in force at that moment or later (or are to come), in the order in which they were made."""
        ...


class IssuedLabelRepository(Protocol):
    """Barcodes that were given out. What was given is never given again."""

    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        """Hold the ranges of a pattern until the unit of work ends, other takers wait.

        Gives the next number of each by its first number; a new range from `first` has that one next.
        """
        ...

    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        """Set the next number of a range that we hold."""
        ...

    def add(self, label: IssuedLabel) -> bool:
        """Write a label. False, and nothing is written, where that barcode was given before."""
        ...

    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        """The labels of a basket, in the order in which they were given."""
        ...

    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order; what is not ours, or is marked already, is left alone. Gives how many were marked."""
        ...


class ApiTokenRepository(Protocol):
    """Credentials of callers of the laboratory's API."""

    def add(self, token: ApiToken) -> None:
        """Write a new one. Raises `AlreadyKnownError` for a known id."""
        ...

    def all(self) -> tuple[ApiToken, ...]:
        """Every one, by name and time."""
        ...

    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        """End those of this id or name that are not revoked yet; their number."""
        ...


T = TypeVar("T")


class Role(StrEnum):
    """What a user of the status page may do: look; also retry, release and dismiss; also manage users."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """A user of the status page. `name` is in lower case; the password is kept as its argon2 hash alone."""

    name: str
    role: Role
    password_hash: str
    created_at: datetime
    changed_at: datetime


class OrderRepository(Protocol):
    """Orders, their lines and their labels."""

    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        """Which of these order-level Tasks are in the journal."""
        ...

    def add(self, order: OrderRecord) -> None:
        """Write a new order. Raises `AlreadyKnownError`."""
        ...

    def get_for_update(self, key: OrderKey) -> OrderRecord:
        """Read an order and hold it until the unit of work ends, other writers wait. Raises `StoreError` if unknown."""
        ...

    def save(self, order: OrderRecord) -> None:
        """Write a changed order."""
        ...

    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        """The order's lines, in the order in which they were added."""
        ...

    def add_line(self, line: LineRecord) -> None:
        """Write a new line. Raises `AlreadyKnownError`."""
        ...

    def save_line(self, line: LineRecord) -> None:
        """Write a changed line."""
        ...

    def line(self, key: LineKey) -> LineRecord | None:
        """One line."""
        ...

    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        """Replace the labels of an order."""
        ...

    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        """Uses of these barcodes by lines of other orders that are not refused or withdrawn."""
        ...

    def by_accession(self, accession: str) -> tuple[OrderKey, ...]:
        """Orders that carry this accession, themselves or on a line."""
        ...

    def by_barcode(self, barcode: str) -> tuple[OrderKey, ...]:
        """Orders whose accepted lines use this label, newest first; where there is none, those whose withdrawn lines used it."""
        ...

    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        """Orders that are not closed, by key, for going round them all at a gentle pace."""
        ...

    def unassessed_since(self) -> datetime | None:
        """When the oldest order was seen that is still to be judged (seen, fetched or held); None if there is none."""
        ...


class JobRepository(Protocol):
    """The outbox."""

    def add(self, job: NewJob) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
        ...

    def claim(self, kinds: Collection[JobKind], *, owner: str, now: datetime, lease: timedelta, limit: int) -> tuple[Job, ...]:
        """Take up to `limit` effects that are due: due and unknown ones, the first open one of each lane, oldest first.

        Before that, effects in flight whose lease has lapsed become unknown (and are due at once). Concurrent claims never
        give the same effect.
        """
        ...

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        ...

    def save(self, job: Job) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        ...

    def get(self, job: JobId) -> Job | None:
        """One effect."""
        ...

    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        """The effects of an order, oldest first."""
        ...

    def needing_operator(self) -> tuple[Job, ...]:
        """Effects that wait for a person (parked, or to be reviewed), oldest first."""
        ...

    def make_due(self, kind: JobKind, *, now: datetime) -> int:
        """Make effects of a kind that wait (to be done, or looked at, in the future) due now; their number."""
        ...


class ReportRepository(Protocol):
    """What laboratory systems have reported."""

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        ...

    def get_for_update(self, key: ReportKey) -> ReportRecord:
        """Read a report and hold it until the unit of work ends. Raises `StoreError` if unknown."""
        ...

    def exists(self, source: str, message: str) -> bool:
        """Whether a message of that adapter was kept."""
        ...

    def save(self, report: ReportRecord) -> None:
        """Write a changed report."""
        ...

    def versions(self, order: OrderKey, report_id: str) -> tuple[ReportRecord, ...]:
        """All messages of one report of one order, by sequence."""
        ...

    def needing_operator(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        ...


class UploadRepository(Protocol):
    """Which resources of ours are on the service."""

    def get(self, identifier: str) -> UploadRecord | None:
        """What is known of the resource with this identifier value."""
        ...

    def save(self, upload: UploadRecord) -> None:
        """Write or replace what is known."""
        ...


class Vault(Protocol):
    """Identification data and documents, encrypted at rest, apart from everything else."""

    def save_identity(self, order: OrderKey, identity: bytes, *, at: datetime) -> None:
        """Keep (or replace) the identification data of an order."""
        ...

    def identity(self, order: OrderKey) -> bytes | None:
        """The identification data of an order; None once it was purged."""
        ...

    def save_document(self, content: bytes, content_type: str, *, at: datetime) -> str:
        """Keep a document; gives its id (the same content has the same id)."""
        ...

    def document(self, document: str) -> tuple[bytes, str] | None:
        """A document and its content type; None once it was purged."""
        ...


class HostedDocumentRepository(Protocol):
    """Documents that our own API serves."""

    def save(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        ...

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        ...


class EventRepository(Protocol):
    """Lines of timelines."""

    def add(self, event: Event) -> None:
        """Add a line to an order's timeline, to a report's history, or to both."""
        ...


class AlertRepository(Protocol):
    """Alerts; at most one of a key is open."""

    def open(self, alert: Alert) -> bool:
        """Open an alert. False if one of that key is open already; its text becomes this one's."""
        ...

    def close(self, key: str, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        ...


class RejectionRepository(Protocol):
    """Which rule rejected which order (law 10 counts them)."""

    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Record that a rule rejected a line of an order."""
        ...

    def count_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule has rejected since then."""
        ...


class KeyValueRepository(Protocol):
    """Single values (a contract's ids, when the last poll succeeded)."""

    def get(self, key: str) -> str | None:
        """Give the value of a key; None if it was never set."""
        ...

    def set(self, key: str, value: str) -> None:
        """Set the value of a key."""
        ...


class OAuthTokenRepository(Protocol):
    """Our sign-in at the service, encrypted at rest."""

    def current(self) -> StoredToken | None:
        """The newest generation."""
        ...

    def add(self, token: StoredToken) -> None:
        """Store the next generation. Raises `LeaseLostError` if that generation (or a newer one) is there already."""
        ...

    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take the right to refresh, for one process at a time. False while another holds it."""
        ...

    def release_refresh_lease(self, owner: str) -> None:
        """Give the right to refresh back."""
        ...


class UserRepository(Protocol):
    """Users of the status page."""

    def add(self, user: UserRecord) -> None:
        """Write a new user. Raises `AlreadyKnownError`."""
        ...

    def get(self, name: str) -> UserRecord | None:
        """One user."""
        ...

    def save(self, user: UserRecord) -> None:
        """Write a changed user. Raises `StoreError` if unknown."""
        ...

    def remove(self, name: str) -> bool:
        """Remove a user. False if there is none of that name."""
        ...

    def all(self) -> tuple[UserRecord, ...]:
        """Every user, by name."""
        ...


class Purge(Protocol):
    """Forgetting on time. Unfinished work is never forgotten: each call takes up to `limit`, and gives how many it took."""

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Forget the identification data of orders that closed before then and have no open effect."""
        ...

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Forget documents kept since before then that no unfinished report names and that are not served (any more)."""
        ...

    def closed_orders(self, *, before: datetime, limit: int = 500) -> int:
        """Forget all about orders that closed before then, with no open effect and no waiting report; gives the number of orders.

        Closed alerts, refusals, and reports and effects that belong to no order, if finished before then, go with them.
        """
        ...

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were given before then. The barcodes stay known: none is given again."""
        ...

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Forget catalogue versions that were replaced before then, but for the newest `keep`."""
        ...


class UnitOfWork(Protocol):
    """One transaction. What is not committed is rolled back."""

    @property
    def orders(self) -> OrderRepository:
        """Orders."""
        ...

    @property
    def jobs(self) -> JobRepository:
        """The outbox."""
        ...

    @property
    def reports(self) -> ReportRepository:
        """Reports."""
        ...

    @property
    def uploads(self) -> UploadRepository:
        """Uploads."""
        ...

    @property
    def vault(self) -> Vault:
        """Identification data and documents."""
        ...

    @property
    def hosted_documents(self) -> HostedDocumentRepository:
        """Documents that our own API serves."""
        ...

    @property
    def events(self) -> EventRepository:
        """Timelines."""
        ...

    @property
    def alerts(self) -> AlertRepository:
        """Alerts."""
        ...

    @property
    def rejections(self) -> RejectionRepository:
        """Rejections by rule."""
        ...

    @property
    def key_values(self) -> KeyValueRepository:
        """Single values."""
        ...

    @property
    def oauth_tokens(self) -> OAuthTokenRepository:
        """Our sign-in."""
        ...

    @property
    def users(self) -> UserRepository:
        """Users of the status page."""
        ...

    @property
    def catalogues(self) -> CatalogueRepository:
        """Imported catalogue versions."""
        ...

    @property
    def turnaround_notices(self) -> TurnaroundNoticeRepository:
        """Stopped and delayed tests."""
        ...

    @property
    def issued_labels(self) -> IssuedLabelRepository:
        """Barcodes that we gave out."""
        ...

    @property
    def api_tokens(self) -> ApiTokenRepository:
        """Callers of the laboratory's API."""
        ...

    @property
    def purge(self) -> Purge:
        """Forgetting on time."""
        ...

    def commit(self) -> None:
        """Make it so."""
        ...


class Store(Protocol):
    """Opens units of work."""

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in a unit of work, in one thread hop. What it did not commit is rolled back.

        Raises `StoreUnreachableError` (nothing was written; again later) and what `work` raises.
        """
        ...
