"""What a `MemoryStore` holds: plain dictionaries of frozen records."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from datetime import datetime

from lab_agent.domain.journal import (
    Alert,
    Effect,
    Event,
    HostedDocument,
    LabelUse,
    LineRecord,
    OrderRecord,
    ReportRecord,
    StoredToken,
    UploadRecord,
)
from lab_agent.domain.offer import ApiToken, CatalogueVersion, EtaNotice, LabelGiven
from lab_agent.ports.store import UserRecord


@dataclass(slots=True)
class Shelf:
    """Everything in the store; a copy of it shares the frozen records and nothing else."""

    notes: dict[str, str]
    orders: dict[str, OrderRecord] = field(default_factory=dict)
    lines: dict[str, LineRecord] = field(default_factory=dict)
    labels: list[LabelUse] = field(default_factory=list)
    effects: dict[int, Effect] = field(default_factory=dict)
    once: set[str] = field(default_factory=set)
    reports: dict[str, ReportRecord] = field(default_factory=dict)
    uploads: dict[str, UploadRecord] = field(default_factory=dict)
    identities: dict[str, bytes] = field(default_factory=dict)
    documents: dict[str, tuple[bytes, str, datetime]] = field(default_factory=dict)
    hosted: dict[str, HostedDocument] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    refusals: list[tuple[str, str, datetime]] = field(default_factory=list)
    tokens: dict[int, StoredToken] = field(default_factory=dict)
    refresh: tuple[str, datetime] | None = None
    users: dict[str, UserRecord] = field(default_factory=dict)
    catalogues: list[CatalogueVersion] = field(default_factory=list)
    eta_notices: list[EtaNotice] = field(default_factory=list)
    label_ranges: dict[tuple[str, int], int] = field(default_factory=dict)
    labels_given: dict[str, LabelGiven] = field(default_factory=dict)
    api_tokens: dict[str, ApiToken] = field(default_factory=dict)
    last_effect: int = 0
    last_report: int = 0

    def copy(self) -> Shelf:
        """Give a copy that can be changed without changing this one."""
        return Shelf(**{each.name: copy.copy(getattr(self, each.name)) for each in fields(self)})
