"""Results as rows: which can be read now, what they contain, and how they are marked afterwards."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, func, or_, select, update

from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.patient_columns import PATIENT_FIELDS, to_patient
from lab_agent.lis.raw_messages import message_id
from lab_agent.lis.serialization import load_message
from lab_agent.lis.sql.settings import SqlSettings
from lab_agent.lis.sql.staging_tables import StagingTables
from lab_agent.lis.tabular_values import OBSERVATION_FIELDS, TabularValues, drop_none, read_observations
from lab_agent.lis.value_reading import ValueRules
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, Problem


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A result as read: the id of its row, its stable message id, its JSON, and what cannot be read of its values."""

    id: int
    message_id: str
    data: bytes
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultTables:
    """The tables that results are read from."""

    tables: StagingTables
    settings: SqlSettings

    def list_claimable(self, connection: Connection) -> list[int]:
        """The row ids of the results that can be claimed, oldest first."""
        results = self.tables.results
        rows = connection.execute(
            select(results.c.id).where(self._is_claimable()).order_by(results.c.id).limit(self.settings.batch)
        )
        return list(rows.scalars())

    def claim(self, connection: Connection, row_id: int) -> bool:
        """Claim a result; False if another agent was faster, or the LIS withdrew it."""
        results = self.tables.results
        mine = {"claimed_by": self.settings.claimed_by, "claimed_at": _utc_now()}
        return (
            connection.execute(update(results).where(results.c.id == row_id, self._is_claimable()).values(**mine)).rowcount == 1
        )

    def read(self, connection: Connection, row_id: int) -> ResultRow:
        """Read a result with all its rows. Raises `DataInvalidError` if its documents are too large."""
        results = self.tables.results
        row = connection.execute(select(results).where(results.c.id == row_id)).one()
        values = self._values(connection, row)
        data = row.document.encode("utf-8") if row.document else exact_json.dumps(self._to_json(connection, row, values))
        return ResultRow(row_id, message_id(f"row-{row_id}:{row.created_at}", data), data, values.problems)

    def parse(self, result_row: ResultRow) -> LabMessage:
        """Parse it into a message. Raises `DataInvalidError`, naming every invalid field."""
        if result_row.problems:
            raise DataInvalidError(result_row.problems)
        return load_message(result_row.data, time_zone=self.settings.zone)

    def mark_processed(self, connection: Connection, row_id: int) -> None:
        """Mark a result as committed."""
        self._mark(connection, row_id, processed_at=func.current_timestamp(), fault=None)

    def mark_faulty(self, connection: Connection, row_id: int, error: DataInvalidError) -> None:
        """Mark a result as rejected, with the reason; it is read again once the LIS sets `fault` to NULL."""
        self._mark(connection, row_id, fault="\n".join(map(str, error.problems))[:4000])

    def _mark(self, connection: Connection, row_id: int, **values: Any) -> None:
        results = self.tables.results
        cleared = {"claimed_by": None, "claimed_at": None}
        connection.execute(update(results).where(results.c.id == row_id).values(**values, **cleared))

    def _is_claimable(self) -> Any:
        columns = self.tables.results.c
        lapsed = _utc_now() - timedelta(seconds=self.settings.claim_lasts)
        ours = or_(columns.claimed_by.is_(None), columns.claimed_by == self.settings.claimed_by, columns.claimed_at < lapsed)
        return and_(columns.ready == 1, columns.processed_at.is_(None), columns.fault.is_(None), ours)

    def _values(self, connection: Connection, row: Row[Any]) -> TabularValues:
        is_report = row.kind == "report" and not row.document
        rows = self._child_rows(connection, self.tables.values, row.id) if is_report else []
        return read_observations(({name: one[name] for name in OBSERVATION_FIELDS} for one in rows), ValueRules())

    def _to_json(self, connection: Connection, row: Row[Any], values: TabularValues) -> dict[str, Any]:
        head = row._mapping  # noqa: SLF001 — SQLAlchemy's public name for a row's columns by name
        references = _strip_padding({"order": head["order_key"], "barcode": head["barcode"], "accession": head["accession"]})
        match head["kind"]:
            case "report":
                body = {**self._report(connection, head, values), "patient": to_patient(_patient_columns(head))}
            case "rejection":
                collect_again = bool(head["collect_again"])
                body = {
                    "not_performed": self._not_performed(connection, head["id"]),
                    "collect_again": collect_again,
                    "patient": to_patient(_patient_columns(head)),
                }
            case "accession_update":
                body = {"accessions": self._reference_rows(connection, self.tables.accessions, head["id"])}
            case _:
                body = {}
        return drop_none({"kind": head["kind"], **references, **body})

    def _report(self, connection: Connection, head: Mapping[Any, Any], values: TabularValues) -> dict[str, Any]:
        return {
            **_strip_padding({"report_id": head["report_id"]}),
            "version": head["version"],
            "status": head["status"],
            "lines": _split_words(head["line_keys"]),
            "items": _split_words(head["items"]),
            "completes": _split_words(head["completes"]),
            "effective": head["effective_at"],
            "issued": head["issued_at"],
            "observations": values.observations,
            "documents": self._documents(connection, head["id"]),
            "not_performed": self._not_performed(connection, head["id"]),
        }

    def _documents(self, connection: Connection, row_id: int) -> list[dict[str, Any]]:
        table = self.tables.documents
        size = connection.execute(select(func.sum(func.length(table.c.content))).where(table.c.result_id == row_id)).scalar()
        if size is not None and size > self.settings.max_document_bytes:
            problem = Problem("documents", f"are larger than {self.settings.max_document_bytes} bytes", "send smaller documents")
            raise DataInvalidError((problem,))
        names = ("url", "content_type", "language", "title")
        return [
            drop_none({**{name: row[name] for name in names}, "content": _base64(row["content"])})
            for row in self._child_rows(connection, table, row_id)
        ]

    def _not_performed(self, connection: Connection, row_id: int) -> list[dict[str, Any]]:
        return self._reference_rows(connection, self.tables.not_performed, row_id)

    def _reference_rows(self, connection: Connection, table: Table, row_id: int) -> list[dict[str, Any]]:
        """Rows that refer to a line, an item or a tube, as JSON."""
        rows = ({**row, "line": row["line_key"]} for row in self._child_rows(connection, table, row_id))
        hidden = {"result_id", "position", "line_key"}
        return [drop_none(_strip_padding({name: item for name, item in row.items() if name not in hidden})) for row in rows]

    def _child_rows(self, connection: Connection, table: Table, row_id: int) -> list[Mapping[Any, Any]]:
        rows = connection.execute(select(table).where(table.c.result_id == row_id).order_by(table.c.position))
        return list(rows.mappings())


def _patient_columns(head: Mapping[Any, Any]) -> dict[str, str | None]:
    """Whose it is; as text also where the LIS made the column a date."""
    return {name: None if head[name] is None else str(head[name]) for name in PATIENT_FIELDS}


def _strip_padding(row: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of a row without the padding that a fixed-width column adds."""
    return {name: text.strip(" ") if isinstance(text, str) else text for name, text in row.items()}


def _split_words(text: str | None) -> list[str] | None:
    return text.split() if text is not None else None


def _base64(content: bytes | None) -> str | None:
    return base64.b64encode(content).decode("ascii") if content is not None else None


def _utc_now() -> datetime:
    """The time in UTC without a zone, which every database stores alike."""
    return datetime.now(UTC).replace(tzinfo=None)
