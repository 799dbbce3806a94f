"""What a `MemoryStore` holds: plain dictionaries of frozen records."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from datetime import datetime

from lab_agent.domain.journal import (
    Alert,
    Event,
    HostedDocument,
    Job,
    LabelUse,
    LineRecord,
    OrderRecord,
    ReportRecord,
    StoredToken,
    UploadRecord,
)
from lab_agent.domain.offer import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.ports.store import UserRecord


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
