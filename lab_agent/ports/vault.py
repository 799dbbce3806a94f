"""Where identification data and documents are kept, apart from everything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from lab_agent.domain.ids import JobId, OrderKey, ReportKey
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.report_records import HostedDocument


class Vault(Protocol):
    """Identification data and documents, encrypted at rest, apart from everything else. Reading raises `CryptoError`."""

    def save_identity(self, order: OrderKey, identity: bytes, *, at: datetime) -> None:
        """Store or replace the identification data of an order."""
        ...

    def index_patient(self, order: OrderKey, terms: Collection[str], *, is_first: bool = False) -> None:
        """Let the order be found by these terms of its patient (`KnownPatient.search_terms`), of which only digests are kept.

        They replace those of before; `is_first` says that there are none.
        """
        ...

    def identity(self, order: OrderKey) -> bytes | None:
        """The identification data of an order; None once it was purged."""
        ...

    def save_reported_patient(self, report: ReportKey, patient: bytes, *, at: datetime) -> None:
        """Store whose result a report is, as the laboratory system says. The report must be there: with it, this is deleted."""
        ...

    def reported_patient(self, report: ReportKey) -> bytes | None:
        """Whose result it is; None where the laboratory system did not say, or once it was purged."""
        ...

    def save_service_message(self, job: JobId, order: OrderKey, said: ServiceMessage) -> None:
        """Add what a remote system said to an attempt at a job of an order; the last ten are kept."""
        ...

    def service_messages(self, order: OrderKey) -> Mapping[JobId, tuple[ServiceMessage, ...]]:
        """What was said to the last attempts at the jobs of an order, oldest first; purged with its identification data."""
        ...

    def save_document(self, content: bytes, content_type: str, *, at: datetime) -> str:
        """Store a document, or store it for longer; gives its id (the same content has the same id)."""
        ...

    def document(self, document: str) -> tuple[bytes, str] | None:
        """A document and its content type; None once it was purged."""
        ...

    def seal(self, content: bytes) -> bytes:
        """Encrypt what is kept elsewhere, and not for long: no key rotation reaches it."""
        ...

    def unseal(self, sealed: bytes) -> bytes:
        """Give back what was sealed."""
        ...


class HostedDocumentRepository(Protocol):
    """Documents that our own API serves."""

    def save(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        ...

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        ...
