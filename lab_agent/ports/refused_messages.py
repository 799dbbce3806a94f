"""The store's part for refused messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from lab_agent.domain.ids import RefusedKey
from lab_agent.domain.records import Event
from lab_agent.domain.refused_messages import RefusedContent, RefusedMessage, RefusedState


class RefusedMessageRepository(Protocol):
    """Refused messages, and their contents in the vault. Reading a content raises `CryptoError`."""

    def get(self, key: RefusedKey) -> RefusedMessage | None:
        """Read one, and lock it until the unit of work ends; None if it is unknown."""
        ...

    def save(self, message: RefusedMessage) -> None:
        """Write or replace one."""
        ...

    def list(
        self,
        *,
        source: str | None = None,
        states: Collection[RefusedState] = (),
        offset: int = 0,
        limit: int,
    ) -> tuple[tuple[RefusedMessage, ...], int]:
        """Those in `states` (all, if empty) of one adapter or of all, and how many there are in all.

        Newest first; those that wait alone, longest waiting first.
        """
        ...

    def waiting_counts(self) -> Mapping[str, int]:
        """How many wait of each adapter; without those that have none."""
        ...

    def added_since(self, source: str, since: datetime) -> tuple[int, int]:
        """How many messages of an adapter were new since then, and the bytes of those that are kept."""
        ...

    def events(self, key: RefusedKey) -> tuple[Event, ...]:
        """The history of one, oldest first."""
        ...

    def save_content(self, key: RefusedKey, content: RefusedContent, *, at: datetime) -> None:
        """Store or replace the content of one, encrypted."""
        ...

    def content(self, key: RefusedKey) -> RefusedContent | None:
        """The content of one; None once it was purged, or where it was not kept."""
        ...

    def purge_content(self, key: RefusedKey) -> None:
        """Delete the content of one; nothing happens if there is none."""
        ...

    def kept_before(self, before: datetime, *, limit: int) -> tuple[RefusedMessage, ...]:
        """Those whose content is kept and that were refused last before then."""
        ...

    def purge_finished(self, *, before: datetime, limit: int = 500) -> int:
        """Delete those that do not wait and were changed last before then, with their events and contents; how many."""
        ...

    def accepted_since(self, source: str, report_id: str, since: datetime, *, except_message: str) -> datetime | None:
        """When another message about that report of the adapter was accepted last, if that was after `since`."""
        ...
