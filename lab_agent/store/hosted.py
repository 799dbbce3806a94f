"""Documents that our own API serves (`ports.store.Hosted`)."""

from __future__ import annotations

from sqlalchemy import Connection, select

from lab_agent.domain.journal import HostedDocument
from lab_agent.store.rows import to_record, to_values, upsert
from lab_agent.store.tables import hosted_documents


class SqlHostedDocumentRepository:
    """Served documents, in the table `hosted`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        upsert(self._connection, hosted_documents, to_values(document), "address")

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        row = (
            self._connection.execute(select(hosted_documents).where(hosted_documents.c.address == address))
            .mappings()
            .one_or_none()
        )
        return None if row is None else to_record(HostedDocument, row)
