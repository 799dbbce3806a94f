"""The smaller books, in memory: uploads, vault, alerts and notes, sign-in, users."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Alert, Event, HostedDocument, StoredToken, UploadRecord
from lab_agent.errors import AlreadyExistsError, LeaseLostError, StoreError
from lab_agent.ports.store import UserRecord
from lab_agent.store.memory_shelf import MemoryData


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
