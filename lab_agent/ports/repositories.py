"""The store as the workflow sees it: a unit of work and the repositories in it.

A unit of work is synchronous and runs in one thread hop; what was not committed is rolled back. The repositories of jobs, of
the catalogue and of credentials have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol, TypeVar

from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.job_records import FailureGroup, JobKind
from lab_agent.domain.records import LabelUse, LineRecord, OrderRecord, WaitingGroup
from lab_agent.domain.report_records import HoldReason, ReportRecord, UploadRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.store_health import StoreHealth
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.ports.activity import ActivityRepository
from lab_agent.ports.api_refusals import ApiRefusalRepository
from lab_agent.ports.audit import AuditRepository
from lab_agent.ports.catalogue_repositories import CatalogueRepository, IssuedLabelRepository, TurnaroundNoticeRepository
from lab_agent.ports.credential_repositories import ApiTokenRepository, OAuthTokenRepository, SessionRepository, UserRepository
from lab_agent.ports.erasure import Erasure
from lab_agent.ports.event_repositories import AlertRepository, EventRepository, KeyValueRepository, RejectionRepository
from lab_agent.ports.job_repository import JobRepository
from lab_agent.ports.leases import LeaseRepository
from lab_agent.ports.notifications import NotificationRepository
from lab_agent.ports.programs import ProgramRepository
from lab_agent.ports.refused_messages import RefusedMessageRepository
from lab_agent.ports.search_index import SearchIndex
from lab_agent.ports.vault import HostedDocumentRepository, Vault
from lab_agent.ports.workers import WorkerRepository

T = TypeVar("T")


class UnitOfWork(Protocol):
    """What is written together or not at all. What is not committed is undone.

    What was read or written in it may not be read again; an error about what was written may be raised as late as by `commit`.
    """

    orders: OrderRepository
    jobs: JobRepository
    reports: ReportRepository
    uploads: UploadRepository
    vault: Vault
    hosted_documents: HostedDocumentRepository
    events: EventRepository
    alerts: AlertRepository
    notifications: NotificationRepository
    rejections: RejectionRepository
    refused_messages: RefusedMessageRepository
    key_values: KeyValueRepository
    oauth_tokens: OAuthTokenRepository
    users: UserRepository
    status_sessions: SessionRepository
    catalogues: CatalogueRepository
    turnaround_notices: TurnaroundNoticeRepository
    issued_labels: IssuedLabelRepository
    api_tokens: ApiTokenRepository
    api_refusals: ApiRefusalRepository
    workers: WorkerRepository
    programs: ProgramRepository
    leases: LeaseRepository
    purge: Purge
    activity: ActivityRepository
    audit: AuditRepository
    erasure: Erasure
    search: SearchIndex

    def waiting_groups(self) -> tuple[WaitingGroup, ...]:
        """What waits, counted by why: held orders by cause, held lines, parts that wait by laboratory system, orders and lines
        with unreadable Tasks; results that are unmatched, unmapped, or held for a reason; refused messages by adapter.
        """
        ...

    def all_groups(self) -> tuple[tuple[FailureGroup, ...], tuple[WaitingGroup, ...]]:
        """What fails (`jobs.failure_groups`) and what waits (`waiting_groups`), read together."""
        return self.jobs.failure_groups(), self.waiting_groups()

    def commit(self) -> None:
        """Write everything at once; it lasts when `Store.run` returns, and nothing outside may follow from it before."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Inside the block nothing is locked, whatever reads: what is read may be changed by others before it is used.

        For what belongs to others than this unit of work is about: two that lock several orders would wait for each other.
        """
        ...


class Store(Protocol):
    """Opens units of work."""

    on_jobs_due: Callable[[frozenset[JobKind]], None]
    """Called in the event loop after a commit that made jobs due (`JobRepository.made_due`), with their kinds."""
    health: StoreHealth
    """What is wrong with the database, as far as is known."""

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in a unit of work, in one thread hop. What it did not commit is rolled back.

        Raises `StoreUnreachableError` (nothing was written; try again later), and what `work` raises.
        """
        ...

    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` on what is committed, beside whoever writes: it sees one moment, locks nothing, and cannot write.

        Raises `StoreUnreachableError`, and what `work` raises.
        """
        ...

    async def look(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` like `run_read_only`, but each thing that it reads may be as it is at a moment of its own.

        That is faster, and enough where what is read need not fit together to the millisecond.
        """
        return await self.run_read_only(work)

    async def reclaim_space(self) -> int:
        """Give room that was freed in the database back to the disk, in small portions, where that can be done beside the work.

        How many bytes. Raises `StoreUnreachableError`.
        """
        ...

    async def verify(self) -> None:
        """Read whether the database is still the one that was opened, with its schema and key. Raises `StoreUnreachableError`."""
        ...

    async def probe(self) -> None:
        """Try whether it can be read and written, also in an outage. Raises `StoreUnreachableError`."""
        ...


class OrderRepository(Protocol):
    """Orders, their lines and their labels."""

    def existing(self, task_ids: Collection[str]) -> frozenset[str]:
        """Which of these order-level Tasks are stored."""
        ...

    def add(self, order: OrderRecord) -> None:
        """Write a new order. Raises `AlreadyExistsError`."""
        ...

    def add_new(self, orders: Sequence[OrderRecord]) -> frozenset[OrderKey]:
        """Write those of the orders that are not stored yet; gives which these were."""
        ...

    def prefetch(self, keys: Collection[OrderKey]) -> None:
        """Read orders at once that are looked at (`get`) next, in a block of `reading`."""
        ...

    def get(self, key: OrderKey) -> OrderRecord:
        """Read an order that is only looked at. Raises `StoreError` if it is unknown."""
        ...

    def get_for_update(self, key: OrderKey) -> OrderRecord:
        """Read an order and lock it until the unit of work ends. Raises `StoreError` if it is unknown."""
        ...

    def lock(self, key: OrderKey) -> None:
        """Lock an order as `get_for_update` does, for its lines alone; free of charge where there is one writer at a time."""
        ...

    def save(self, order: OrderRecord) -> None:
        """Write a changed order. Raises `StoreError` if it is unknown."""
        ...

    def work_orders(self, key: OrderKey) -> tuple[WorkOrder, ...]:
        """The parts of an order, one for each laboratory system, by the names of their adapters."""
        ...

    def waiting_lines(self) -> Mapping[str, int]:
        """How many lines wait for a result, by the adapters of the laboratory systems that they went to, or go to."""
        ...

    def save_work_order(self, work_order: WorkOrder) -> None:
        """Write or replace a part of an order. Raises `StoreError` if the order is unknown."""
        ...

    def lines(self, key: OrderKey) -> tuple[LineRecord, ...]:
        """The order's lines, in the order in which they were added."""
        ...

    def expect_nothing_of(self, key: OrderKey) -> None:
        """Say that an order was never decided, so that it has no lines, parts and labels yet: none are looked for."""
        ...

    def add_line(self, line: LineRecord) -> None:
        """Write a new line. Raises `AlreadyExistsError`, and `StoreError` if its order is unknown."""
        ...

    def save_line(self, line: LineRecord) -> None:
        """Write a changed line; it was read behind the order's lock (`get_for_update`). Raises `StoreError` if it is unknown."""
        ...

    def line(self, key: LineKey) -> LineRecord | None:
        """One line."""
        ...

    def set_labels(self, key: OrderKey, labels: Collection[LabelUse]) -> None:
        """Replace the labels of an order. Raises `StoreError` if it is unknown."""
        ...

    def lock_labels(self) -> None:
        """Wait until no other unit of work decides about labels: two orders decided at once must not both find a label free."""
        ...

    def labels_in_use(self, barcodes: Collection[str], *, except_order: OrderKey) -> tuple[LabelUse, ...]:
        """Uses of these barcodes by lines of other orders that are not rejected or withdrawn."""
        ...

    def by_accession(self, accession: str, adapter: str) -> tuple[OrderKey, ...]:
        """Orders whose part at this laboratory system carries this accession, itself or on a line; newest first."""
        ...

    def by_barcode(self, barcode: str, adapter: str) -> tuple[OrderKey, ...]:
        """Orders whose accepted or withdrawn lines at this laboratory system use this label, newest first."""
        ...

    def open_orders(self, *, limit: int, after: OrderKey | None = None) -> tuple[OrderRecord, ...]:
        """Orders that are not closed, by key, so that all can be gone through in portions."""
        ...

    def ended_orders(self, task_ids: Collection[str]) -> tuple[OrderRecord, ...]:
        """Closed orders among these order-level Tasks whose Task had ended; those that were left alone are none."""
        ...

    def orders_to_recheck(self, *, now: datetime, limit: int) -> tuple[OrderRecord, ...]:
        """Closed orders whose `recheck_at` has come, longest due first."""
        ...

    def other_lines(
        self, keys: Collection[LineKey], procedure_requests: Collection[str], *, except_order: OrderKey
    ) -> tuple[LineRecord, ...]:
        """Lines of other orders with these keys, whatever became of them, and those about these ProcedureRequests that are done
        or being done; in the order in which they were added.
        """
        ...

    def held(self, cause: str, *, after: OrderKey | None, limit: int) -> tuple[OrderRecord, ...]:
        """Orders that are held for this cause, by key and from after one on, so that all can be gone through in portions."""
        ...

    def unassessed_since(self) -> datetime | None:
        """When the oldest order was seen that is not assessed yet (seen, fetched or held); None if there is none."""
        ...


class ReportRepository(Protocol):
    """Messages of laboratory systems."""

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        ...

    def get_for_update(self, key: ReportKey) -> ReportRecord:
        """Read a report and lock it until the unit of work ends. Raises `StoreError` if it is unknown."""
        ...

    def find(self, source: str, message: str) -> ReportRecord | None:
        """The message with that name of an adapter; None if none is stored."""
        ...

    def newest(self, source: str, report_id: str) -> ReportRecord | None:
        """The message about a report of a laboratory system that arrived last, whatever became of it; None if there is none."""
        ...

    def orders_of(self, source: str, report_id: str) -> tuple[OrderKey, ...]:
        """The orders to which versions of a report of a laboratory system were delivered, or are on their way."""
        ...

    def await_names(self, report: ReportKey, names: Iterable[str]) -> None:
        """Note by which names of an order, none of which may be known yet, a report is to be found again."""
        ...

    def awaiting(self, names: Collection[str]) -> tuple[ReportRecord, ...]:
        """Unmatched reports that wait for an order of one of these names, by arrival."""
        ...

    def save(self, report: ReportRecord) -> None:
        """Write a changed report; its sequence stays. Raises `StoreError` if it is unknown."""
        ...

    def versions(self, order: OrderKey, source: str, report_id: str) -> tuple[ReportRecord, ...]:
        """All versions of one report that the laboratory system `source` sent about an order, by sequence."""
        ...

    def waiting(self, state: ReportState, hold_reason: HoldReason | None, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        """Reports that wait in this state, held ones for this reason, by sequence and from after one on."""
        ...

    def delivered_of(self, order: OrderKey) -> tuple[ReportRecord, ...]:
        """The messages about an order that are delivered, and that no newer version has superseded, by sequence."""
        ...

    def delivered_between(self, since: datetime, until: datetime, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        """The same of all orders that were delivered in this time, by sequence and from after one on."""
        ...

    def needing_operator(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        ...


class UploadRepository(Protocol):
    """Which resources of ours are on the service."""

    def get(self, identifier: str) -> UploadRecord | None:
        """The resource with this identifier value; None if it is unknown."""
        ...

    def find(self, identifiers: Collection[str]) -> Mapping[str, UploadRecord]:
        """Those that are known of the resources with these identifier values, by them."""
        ...

    def save(self, upload: UploadRecord) -> None:
        """Write or replace it."""
        ...


class Purge(Protocol):
    """Deletes what was kept long enough, never unfinished work. Each call deletes up to `limit`, and gives how many."""

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Delete the identification data of orders that closed before then and have no open job.

        What a result says of its patient goes with it, as soon as the result was delivered or dismissed before then.
        """
        ...

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Delete documents stored before then that no unfinished report names and that are not served (any more)."""
        ...

    def closed_orders(self, *, before: datetime, limit: int = 500) -> int:
        """Delete all about orders that closed before then, with no open job and no unfinished report; gives the number of orders.

        Closed alerts, rejections, and reports and jobs that belong to no order, if finished before then, go with them.
        """
        ...

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were issued before then. The barcodes stay known: none is issued again."""
        ...

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Delete catalogue versions that were replaced before then, except for the newest `keep`."""
        ...
