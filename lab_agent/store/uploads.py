"""Which resources of ours are on the service (`ports.store.Uploads`)."""

from __future__ import annotations

from sqlalchemy import Connection, select

from lab_agent.domain.journal import UploadRecord
from lab_agent.store.rows import to_record, to_values, upsert
from lab_agent.store.tables import uploads


class SqlUploadRepository:
    """Uploads, in the table of that name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, identifier: str) -> UploadRecord | None:
        """What is known of the resource with this identifier value."""
        row = self._connection.execute(select(uploads).where(uploads.c.identifier == identifier)).mappings().one_or_none()
        return None if row is None else to_record(UploadRecord, row)

    def save(self, upload: UploadRecord) -> None:
        """Write or replace what is known."""
        upsert(self._connection, uploads, to_values(upload), "identifier")
