"""The doors by which results come in: a file in the folder, an HL7 v2 message over MLLP, a webhook, rows of staging tables.

Each takes the same `ResultMessage` and hands it to a real adapter, so that what a result comes to is asked once for all of them.
"""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import insert, text, update

from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.laboratory_system import Inbox
from lab_agent.lis.patient_columns import PATIENT_FIELDS, to_patient
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.tabular_values import drop_none
from lab_agent.shared import exact_json
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, http_lis, signed_headers
from tests.harness.databases import create_staging_tables
from tests.harness.hl7_wire import dialled, framed
from tests.harness.programs import free_port

ZONE = "Europe/Berlin"
"""The zone of times without an offset."""


@dataclass(frozen=True, kw_only=True)
class ResultMessage:
    """A version of a report of one value, in words that every laboratory system has.

    `id` is the sender's name of the message: MSH-10, Idempotency-Key, the name of a file or the number of a row; None for a
    new one each time. A time without an offset is written so, and is one of `ZONE`.
    """

    report_id: str
    value: str
    issued: datetime
    effective: datetime
    code: str = "GLU"
    version: int | None = None
    status: str = "final"
    """`preliminary`, `final` or `amended`, of the value; a final or amended one ends its report."""
    order: str | None = None
    line: str | None = None
    accession: str | None = None
    barcode: str | None = None
    item: str | None = None
    patient: Mapping[str, str] = field(default_factory=dict)
    """Of `family`, `given`, `birth_date`, `sex` (`male`, `female`), and `id` in the system `id_system`."""
    id: str | None = None
    written: int = 0
    """Seconds after which its file was written; what comes again is the same file."""


class Door(Protocol):
    async def send(self, message: ResultMessage) -> None:
        """Hand in a message, and wait until it was taken."""
        ...


@asynccontextmanager
async def _started(adapter: Any, inbox: Inbox) -> AsyncIterator[None]:
    await adapter.start(inbox)
    try:
        yield
    finally:
        await adapter.stop()


def _report_status(message: ResultMessage) -> str:
    return "final" if message.status == "amended" else message.status


def _flat_fields(message: ResultMessage) -> dict[str, str | None]:
    """The columns of a row, as they are called in a CSV file."""
    return {
        "report_id": message.report_id,
        "version": None if message.version is None else str(message.version),
        "order": message.order,
        "line": message.line,
        "accession": message.accession,
        "barcode": message.barcode,
        "item": message.item,
        "effective": message.effective.isoformat(),
        "issued": message.issued.isoformat(),
        "code": message.code,
        "value": message.value,
        "unit": "mmol/L",
        "status": _report_status(message),
        "observation_status": message.status,
        **{name: message.patient.get(name.removeprefix("patient_")) for name in PATIENT_FIELDS},
    }


_NO_TIME = datetime.min.replace(tzinfo=UTC)
_COLUMNS = tuple(_flat_fields(ResultMessage(report_id="", value="", issued=_NO_TIME, effective=_NO_TIME)))
_FILE_TIME = 1_772_000_000


@dataclass
class _FolderDoor:
    adapter: FolderAdapter
    folder: Path
    is_json: bool
    numbers: Any = field(default_factory=itertools.count)

    async def send(self, message: ResultMessage) -> None:
        path = self.folder / f"{message.id or next(self.numbers)}.{'json' if self.is_json else 'csv'}"
        path.write_bytes(_as_json(message) if self.is_json else _as_csv(message))
        if message.id:
            os.utime(path, (_FILE_TIME + message.written, _FILE_TIME + message.written))
        await self.adapter.collect()
        assert not path.exists(), "the file was not taken"
        assert not list((self.folder / "failed").iterdir()), "the file was refused"


def _as_csv(message: ResultMessage) -> bytes:
    written = io.StringIO()
    rows = csv.DictWriter(written, _COLUMNS, delimiter=";", lineterminator="\r\n")
    rows.writeheader()
    rows.writerow(_flat_fields(message))
    return written.getvalue().encode()


@asynccontextmanager
async def _folder_door(inbox: Inbox, folder: Path, *, is_json: bool = False) -> AsyncIterator[Door]:
    for name in ("orders", "results"):
        (folder / name).mkdir()
    given = {"orders": folder / "orders", "results": folder / "results", "settle": 0, "time_zone": ZONE}
    columns = {name: name for name in _COLUMNS}
    adapter = FolderAdapter(FolderSettings.model_validate({**given, "csv": {"columns": columns}}), "folder")
    async with _started(adapter, inbox):
        await adapter.check()
        yield _FolderDoor(adapter, folder / "results", is_json)


_HL7_MAP = '[results]\nreport_id = ["ZRP-2"]\nversion = ["ZRP-3"]\n'
_HL7_STATUSES = {"preliminary": "P", "final": "F", "amended": "C"}


def _hl7_time(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}" + (f"{moment:%z}" if moment.tzinfo else "")


@dataclass
class _Hl7Door:
    """ORU^R01; its time is that of the message, MSH-7."""

    port: int
    numbers: Any = field(default_factory=itertools.count)

    async def send(self, message: ResultMessage) -> None:
        control_id, status = message.id or f"M{next(self.numbers)}", _HL7_STATUSES[message.status]
        placer, patient = message.line or message.order or "", message.patient
        sex = {"male": "M", "female": "F"}.get(patient.get("sex", ""), "")
        number = f"{patient['id']}^^^&{patient['id_system']}&URI" if "id" in patient else ""
        name, born = f"{patient.get('family', '')}^{patient.get('given', '')}".strip("^"), patient.get("birth_date", "")
        segments = [
            f"MSH|^~\\&|LIS|LAB|AGENT||{_hl7_time(message.issued)}||ORU^R01^ORU_R01|{control_id}|P|2.5.1",
            f"PID|1||{number}||{name}||{born.replace('-', '')}|{sex}",
            f"OBR|1|{placer}|{message.accession or ''}|{message.item or ''}|||{_hl7_time(message.effective)}{'|' * 18}{status}",
            f"ZRP|1|{message.report_id}|{'' if message.version is None else message.version}",
            f"OBX|1|NM|{message.code}||{message.value}|mmol/L|||||{status}",
            *([f"SPM|1|{message.barcode}"] if message.barcode else []),
        ]
        async with dialled(self.port) as wire:
            await wire.send(framed("\r".join(segments) + "\r"))
            answer = (await wire.frame()).decode()
        assert "\rMSA|AA|" in answer, answer


@asynccontextmanager
async def _hl7_door(inbox: Inbox, folder: Path) -> AsyncIterator[Door]:
    (folder / "map.toml").write_text(_HL7_MAP)
    listening = {"role": "server", "port": 0}
    given = {"orders": listening, "results": listening, "folder": folder / "own", "duplicates": "msh10", "time_zone": ZONE}
    adapter = Hl7v2Adapter(Hl7v2Settings.model_validate({**given, "mapping": folder / "map.toml"}), "hl7v2")
    async with _started(adapter, inbox):
        yield _Hl7Door(adapter.ports[1])


def _as_json(message: ResultMessage) -> bytes:
    observation = {
        "code": {"code": message.code},
        "status": message.status,
        "value_quantity": {"value": message.value, "unit": "mmol/L"},
    }
    return exact_json.dumps(
        drop_none(
            {
                "kind": "report",
                "report_id": message.report_id,
                "version": message.version,
                "status": _report_status(message),
                "order": message.order,
                "lines": [message.line] if message.line else None,
                "accession": message.accession,
                "barcode": message.barcode,
                "items": [message.item] if message.item else None,
                "effective": message.effective.isoformat(),
                "issued": message.issued.isoformat(),
                "observations": [observation],
                "patient": to_patient(_flat_fields(message)),
            }
        )
    )


@asynccontextmanager
async def _http_door(inbox: Inbox, folder: Path) -> AsyncIterator[Door]:
    del folder
    with http_lis(free_port()) as lis:
        given = {"url": lis.url, "secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, "port": lis.agent_port}
        adapter = HttpAdapter(HttpSettings.model_validate({**given, "time_zone": ZONE}), "http")
        numbers = itertools.count()

        class HttpDoor:
            async def send(self, message: ResultMessage) -> None:
                body = _as_json(message)
                headers = signed_headers(LIS_SECRET, message.id or f"key-{next(numbers)}", body)
                status, said = await asyncio.to_thread(lis.post, body, headers)
                assert status == 200, said

        async with _started(adapter, inbox):
            yield HttpDoor()


@asynccontextmanager
async def _sql_door(inbox: Inbox, folder: Path) -> AsyncIterator[Door]:
    """Rows; one with the number of an earlier one is that row, filled anew."""
    engine, tables = create_staging_tables(url := f"sqlite:///{folder / 'lis.db'}")
    adapter = SqlAdapter(SqlSettings.model_validate({"url": url, "time_zone": ZONE}), "sql")
    known: dict[str, int] = {}

    class SqlDoor:
        async def send(self, message: ResultMessage) -> None:
            await asyncio.to_thread(self._write, message)
            await adapter.collect()
            with engine.connect() as connection:
                faults = list(connection.execute(text("select fault from lab_results where fault is not null")).scalars())
            assert not faults, faults

        def _write(self, message: ResultMessage) -> None:
            row = _flat_fields(message)
            renamed = {"order": "order_key", "line": "line_keys", "item": "items"}
            renamed |= {"effective": "effective_at", "issued": "issued_at"}
            head = {column: row[name] for name, column in renamed.items()}
            head |= {name: row[name] for name in _COLUMNS if name in tables.results.c and name not in renamed}
            head |= {"version": message.version, "ready": 1, "processed_at": None}
            said = {name: row[name] for name in ("code", "value", "unit", "observation_status")}
            results, values = tables.results, tables.values
            with engine.begin() as connection:
                if (number := known.get(message.id or "")) is not None:
                    connection.execute(update(results).where(results.c.id == number).values(**head))
                    connection.execute(update(values).where(values.c.result_id == number).values(**said))
                    return
                (number,) = connection.execute(insert(results).values(**head)).inserted_primary_key or (0,)
                connection.execute(insert(values).values(result_id=number, position=0, **said))
                if message.id:
                    known[message.id] = number

    async with _started(adapter, inbox):
        yield SqlDoor()
    engine.dispose()


DOORS = {
    "folder": _folder_door,
    "json": partial(_folder_door, is_json=True),
    "hl7v2": _hl7_door,
    "http": _http_door,
    "sql": _sql_door,
}


@asynccontextmanager
async def open_door(name: str, inbox: Inbox, folder: Path) -> AsyncIterator[Door]:
    """The door of the adapter `name`, with its adapter started on this inbox."""
    await asyncio.to_thread(folder.mkdir)
    async with DOORS[name](GuardedInbox(inbox, name), folder) as door:
        yield door
