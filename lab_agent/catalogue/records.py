"""The records of what the laboratory offers: catalogue versions, turnaround notices, issued labels, tokens of API clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from lab_agent.shared.ids import OrderKey

CATALOGUE_CHANGE_STAMP = "catalogue.change_stamp"
"""Key of a value that changes with every change of catalogue, notices and API tokens: processes poll this one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueVersion:
    """One imported catalogue, in force from `since` until the next one is. `content` is its tables, compressed."""

    version: str
    since: datetime
    content: bytes
    origin: str
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnaroundNotice:
    """A test that is stopped (`delay_hours` None) or delayed from `start` up to `end`; `contract` None means every contract."""

    key: str
    item: str
    contract: str | None
    start: datetime
    end: datetime
    delay_hours: Decimal | None = None
    caption: str = ""
    made_at: datetime
    by: str | None = None
    lifted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedLabel:
    """A barcode that was issued. `basket` identifies the basket that it was for, so that the same basket gets the same again."""

    label: str
    pool: str
    serial: int
    basket: str | None
    tube_slot: str
    issued_at: datetime
    used_at: datetime | None = None
    order: OrderKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A credential of an API client; `contracts` None sees every contract. The secret itself is not stored."""

    id: str
    name: str
    sha256: str
    contracts: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
