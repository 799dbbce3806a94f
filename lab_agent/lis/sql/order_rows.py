"""Orders as rows: built without I/O, and written in one transaction, completely or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from lab_agent.lis.lab_order import LabOrder, OrderPatient, PatientName, format_answer_path
from lab_agent.lis.serialization import dump_order
from lab_agent.lis.sql.staging_tables import StagingTables
from lab_agent.shared import exact_json
from lab_agent.shared.errors import LisRejected
from lab_agent.shared.values import Coding, Identifier

Rows = Sequence[dict[str, Any]]
_SERVICE_IDS = frozenset({"specimen_id", "patient_id"})


def build_rows(order: LabOrder, tables: StagingTables) -> tuple[tuple[Table, Rows], ...]:
    """The rows of an order by table, in the sequence in which they must be written."""
    key = {"order_key": order.key}
    built: tuple[tuple[Table, Rows], ...] = (
        (tables.orders, [_order_row(order)]),
        (tables.patients, [{**key, **_patient_row(order.patient)}]),
        (tables.lines, [{**key, **row} for row in _line_rows(order)]),
        (tables.specimens, [{**key, **row} for row in _specimen_rows(order)]),
        (tables.containers, [{**key, **row} for row in _container_rows(order)]),
        (tables.line_specimens, [{**key, **row} for row in _line_specimen_rows(order)]),
        (tables.answers, [{**key, "position": place, **row} for place, row in enumerate(_answer_rows(order))]),
    )
    return tuple((table, [_fit_ids(table, row) for row in rows]) for table, rows in built)


def _fit_ids(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """The row with ids of the exchange service that are longer than their columns cut, with a digest in the place of the rest.

    No order is to blame for them (law 10), and whoever takes it needs them only to tell its specimens apart.
    """
    longest = {name: getattr(table.c[name].type, "length", 0) for name in _SERVICE_IDS & row.keys()}
    return {**row, **{name: _fit(row[name], length) for name, length in longest.items() if len(row[name] or "") > length}}


def _fit(text: str, length: int) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: length - len(digest) - 1]}…{digest}"


def render_rows(order: LabOrder, tables: StagingTables) -> bytes:
    """The rows of an order as JSON, by table. Raises `LisRejected` for a text that is longer than its column."""
    built = build_rows(order, tables)
    for table, rows in built:
        for row in rows:
            _check_lengths(table, row)
    return exact_json.dumps({table.name: list(rows) for table, rows in built})


def _check_lengths(table: Table, row: dict[str, Any]) -> None:
    for name, value in row.items():
        longest = getattr(table.c[name].type, "length", None)
        if isinstance(value, str) and longest is not None and len(value) > longest:
            raise LisRejected(f"{table.name}.{name} takes up to {longest} characters, and this order has {len(value)} for it")


@dataclass(frozen=True, slots=True)
class OrderTables:
    """The tables that orders are written to."""

    tables: StagingTables

    def insert(self, connection: Connection, order: LabOrder) -> bool:
        """Write an order, unless it exists already (False). Raises what the database raises."""
        if self.has(connection, order.key):
            return False
        for table, rows in build_rows(order, self.tables):
            if rows:
                connection.execute(insert(table), list(rows))
        return True

    def has(self, connection: Connection, key: str) -> bool:
        """Whether an order with that key exists."""
        orders = self.tables.orders
        return connection.execute(select(orders.c.order_key).where(orders.c.order_key == key)).first() is not None

    def cancel(self, connection: Connection, key: str, lines: Sequence[str], reason: str) -> None:
        """Write the cancellation of lines that are not cancelled yet."""
        table = self.tables.cancellations
        cancelled = set(connection.execute(select(table.c.line_key).where(table.c.order_key == key)).scalars())
        new = [{"order_key": key, "line_key": line, "reason": reason} for line in dict.fromkeys(lines) if line not in cancelled]
        if new:
            connection.execute(insert(table), new)


def _order_row(order: LabOrder) -> dict[str, Any]:
    wanted = (f"{option.channel}={str(option.wanted).lower()}" for option in order.notifications)
    return {
        "order_key": order.key,
        "requisition": order.requisition.value,
        "requisition_system": order.requisition.system,
        "contract": order.contract,
        "ordered_at": order.ordered_at.isoformat(),
        "notifications": ", ".join(wanted) or None,
        "document": dump_order(order).decode("utf-8"),
    }


def _patient_row(patient: OrderPatient) -> dict[str, Any]:
    telecom = {contact.system: contact.value for contact in reversed(patient.telecom)}
    identifier = patient.global_identifier
    own = patient.service_identifier
    return {
        "patient_id": own.value if own else None,
        "patient_id_system": own.system if own else None,
        "identifiers": _join_identifiers(patient.identifiers),
        "anonymous": int(patient.anonymous),
        "family": patient.family,
        "given": patient.given[0] if patient.given else None,
        "second_given": " ".join(patient.given[1:]) or None,
        "other_names": "\n".join(map(_format_name, patient.other_names)) or None,
        "gender": patient.gender,
        "birth_date": patient.birth_date if isinstance(patient.birth_date, date) else None,  # the document has a year or month
        "phone": telecom.get("phone"),
        "email": telecom.get("email"),
        "global_system": identifier.system if identifier else None,
        "global_identifier": identifier.value if identifier else None,
    }


def _format_name(name: PatientName) -> str:
    parts = (name.family, *name.given) if name.family or name.given else (name.text,)
    return " ".join(part for part in parts if part) + (f" ({name.use})" if name.use else "")


def _join_identifiers(identifiers: Sequence[Identifier]) -> str | None:
    """One line for each: system, `|`, value, as a FHIR search writes them."""
    return "\n".join(f"{one.system or ''}|{one.value}" for one in identifiers) or None


def _line_rows(order: LabOrder) -> Rows:
    return [
        {
            "line_key": line.key,
            "position": place,
            "item": line.item,
            "lab_code": line.lab_code,
            "caption": line.text,
            "other_codes": "\n".join(f"{code.system or ''}|{code.code}" for code in line.other_codes) or None,
            "identifier": line.identifiers[0].value if line.identifiers else None,
            "identifier_system": line.identifiers[0].system if line.identifiers else None,
            "ordered_at": line.ordered_at.isoformat(),
            "notes": "\n".join(line.notes) or None,
            "old_order_number": line.old_order_number,
        }
        for place, line in enumerate(order.lines)
    ]


def _specimen_rows(order: LabOrder) -> Rows:
    return [
        {
            "specimen_id": specimen.id,
            "type": specimen.type,
            "body_site": specimen.body_site,
            "collected_at": specimen.collected_at.isoformat() if specimen.collected_at else None,
            "collected_until": specimen.collected_until.isoformat() if specimen.collected_until else None,
            "method": specimen.method,
            "supporting_info": specimen.supporting_info,
        }
        for specimen in order.specimens
    ]


def _container_rows(order: LabOrder) -> Rows:
    return [
        {
            "specimen_id": specimen.id,
            "position": place,
            "barcode": tube.barcode,
            "second_barcode": tube.second_barcode,
            "other_identifiers": _join_identifiers(tube.other_identifiers),
            "type": tube.type,
            "quantity": format(tube.quantity, "f") if tube.quantity is not None else None,
        }
        for specimen in order.specimens
        for place, tube in enumerate(specimen.containers)
    ]


def _line_specimen_rows(order: LabOrder) -> Rows:
    return [{"line_key": line.key, "specimen_id": one} for line in order.lines for one in dict.fromkeys(line.specimens)]


def _answer_rows(order: LabOrder) -> Rows:
    return [
        {
            "link_id": answer.link_id,
            "path": format_answer_path(answer.path),
            "question": answer.text,
            **_answer_columns(value),
            "answer_unit": unit or None,
        }
        for answer in order.answers
        for value, unit in zip_longest(answer.values, answer.units)
    ]


def _answer_columns(value: bool | int | Decimal | str | Coding) -> dict[str, Any]:
    if isinstance(value, Coding):
        return {"answer": value.code, "answer_system": value.system}
    return {"answer": str(value).lower() if isinstance(value, bool) else str(value), "answer_system": None}
