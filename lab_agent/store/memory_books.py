"""The smaller books, in memory: uploads, vault, alerts and notes, sign-in, users."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Alert, Event, HostedDocument, StoredToken, UploadRecord
from lab_agent.errors import AlreadyKnownError, LeaseLostError, StoreError
from lab_agent.ports.store import UserRecord
from lab_agent.store.memory_shelf import Shelf


class MemoryUploads:
    """Which resources of ours are on the service."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def get(self, identifier: str) -> UploadRecord | None:
        """What is known of the resource with this identifier value."""
        return self._shelf.uploads.get(identifier)

    def put(self, upload: UploadRecord) -> None:
        """Write or replace what is known."""
        self._shelf.uploads[upload.identifier] = upload


class MemoryVault:
    """Identification data and documents; in memory alone, so not encrypted."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def put_identity(self, order: OrderKey, identity: bytes, *, at: datetime) -> None:
        """Keep (or replace) the identification data of an order."""
        del at
        self._shelf.identities[order] = identity

    def identity(self, order: OrderKey) -> bytes | None:
        """The identification data of an order; None once it was purged."""
        return self._shelf.identities.get(order)

    def put_document(self, content: bytes, content_type: str, *, at: datetime) -> str:
        """Keep a document, or keep it for longer; gives its id (the same content has the same id)."""
        name = hashlib.sha256(content).hexdigest()
        self._shelf.documents[name] = (content, content_type, at)
        return name

    def document(self, document: str) -> tuple[bytes, str] | None:
        """A document and its content type; None once it was purged."""
        found = self._shelf.documents.get(document)
        return None if found is None else found[:2]


class MemoryHosted:
    """Documents that our own API serves."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def put(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        self._shelf.hosted[document.address] = document

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        return self._shelf.hosted.get(address)


class MemoryBook:
    """Alerts, timelines, refusals and notes."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def open_alert(self, alert: Alert) -> bool:
        """Open an alert. False if one of that key is open already: that one says from now on what this one says."""
        place = self._open_place(alert.key)
        if place is None:
            self._shelf.alerts.append(alert)
            return True
        self._shelf.alerts[place] = replace(self._shelf.alerts[place], text=alert.text)
        return False

    def close_alert(self, key: str, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        place = self._open_place(key)
        if place is None:
            return False
        self._shelf.alerts[place] = replace(self._shelf.alerts[place], closed_at=now)
        return True

    def _open_place(self, key: str) -> int | None:
        return next((place for place, each in enumerate(self._shelf.alerts) if each.key == key and each.closed_at is None), None)

    def tell(self, event: Event) -> None:
        """Add a line to an order's timeline, to a report's history, or to both."""
        self._shelf.events.append(event)

    def add_refusal(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Remember that a rule refused a line of an order."""
        self._shelf.refusals.append((rule, order, at))

    def refusals_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule refused since then."""
        return len({order for name, order, at in self._shelf.refusals if name == rule and at >= since})

    def note(self, key: str, value: str) -> None:
        """Keep a small fact under a key."""
        self._shelf.notes[key] = value

    def noted(self, key: str) -> str | None:
        """A small fact."""
        return self._shelf.notes.get(key)


class MemoryTokens:
    """Our sign-in at the service."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def current(self) -> StoredToken | None:
        """The newest generation."""
        return self._shelf.tokens[max(self._shelf.tokens)] if self._shelf.tokens else None

    def put(self, token: StoredToken) -> None:
        """Store the next generation. Raises `LeaseLostError` if that generation (or a newer one) is there already."""
        if self._shelf.tokens and max(self._shelf.tokens) >= token.generation:
            raise LeaseLostError("This generation of the sign-in, or a newer one, is stored already; nothing was written.")
        self._shelf.tokens[token.generation] = token

    def take_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take the right to refresh, for one process at a time. False while another holds it."""
        held = self._shelf.refresh
        if held is not None and held[0] != owner and held[1] > now:
            return False
        self._shelf.refresh = (owner, now + lease)
        return True

    def drop_refresh_lease(self, owner: str) -> None:
        """Give the right to refresh back; harmless where another holds it by now."""
        if self._shelf.refresh is not None and self._shelf.refresh[0] == owner:
            self._shelf.refresh = None


class MemoryUsers:
    """Users of the status page."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def add(self, user: UserRecord) -> None:
        """Write a new user. Raises `AlreadyKnownError`."""
        if user.name in self._shelf.users:
            raise AlreadyKnownError(f"There is a user {user.name} already; nothing was written.")
        self._shelf.users[user.name] = user

    def get(self, name: str) -> UserRecord | None:
        """One user."""
        return self._shelf.users.get(name)

    def save(self, user: UserRecord) -> None:
        """Write a changed user. Raises `StoreError` if unknown."""
        if user.name not in self._shelf.users:
            raise StoreError(f"There is no user {user.name}.")
        self._shelf.users[user.name] = user

    def remove(self, name: str) -> bool:
        """Remove a user. False if there is none of that name."""
        return self._shelf.users.pop(name, None) is not None

    def all(self) -> tuple[UserRecord, ...]:
        """Every user, by name."""
        return tuple(self._shelf.users[name] for name in sorted(self._shelf.users))
