"""The LIS simulator over staging tables: a SQLite database with the tables that `lab-agent adapter sql ddl` prints.

Orders are read column by column, as a laboratory's report generator would; rejections are written as rows, reports as documents.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from typing_extensions import override

from lab_sandbox.demo.lis.simulator import (
    LisTransport,
    SimulatorFolders,
    outgoing_messages,
    remove_sent_message,
    write_cancellation,
)
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.partner.errors import Json, encode


class SqlTransport(LisTransport):
    """Works on `database_file`; creates missing tables with the statements in the file `ddl`."""

    def __init__(self, folders: SimulatorFolders, database_file: Path, ddl: Path) -> None:
        self._folders = folders
        self._database_file = database_file
        with closing(self._open()) as database:
            if not database.execute("select 1 from sqlite_master where name = 'lab_orders'").fetchone():
                database.executescript(ddl.read_text(encoding="utf-8"))

    @override
    def run_once(self) -> Iterator[str]:
        with closing(self._open()) as database:
            yield from self._read_orders(database)
            yield from self._read_cancellations(database)
            yield from self._write_results(database)

    @override
    def close(self) -> None:
        """Nothing stays open between rounds."""

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._database_file, timeout=10.0)
        database.row_factory = sqlite3.Row
        return database

    def _read_orders(self, database: sqlite3.Connection) -> Iterator[str]:
        for row in database.execute("select * from lab_orders where taken_at is null order by created_at").fetchall():
            key = row["order_key"]
            name = f"{key}.json"
            if not (self._folders.received_orders / name).exists():  # or it was read before a crash
                write_atomically(self._folders.orders, name, encode(_build_order(database, row)))
            with database:
                database.execute(
                    "update lab_orders set taken_at = ?, taken_by = 'simulator' where order_key = ?", (_timestamp(), key)
                )
            yield f"read order {key}"

    def _read_cancellations(self, database: sqlite3.Connection) -> Iterator[str]:
        for row in database.execute("select * from lab_cancellations where taken_at is null").fetchall():
            line = {"line": row["line_key"], "reason": row["reason"]}
            write_cancellation(self._folders.orders, {"kind": "cancel", "order": row["order_key"], "lines": [line]})
            with database:
                database.execute("update lab_cancellations set taken_at = ? where line_key = ?", (_timestamp(), row["line_key"]))
            yield f"read the cancellation of line {row['line_key']}"

    def _write_results(self, database: sqlite3.Connection) -> Iterator[str]:
        for file, message in outgoing_messages(self._folders.results):
            with database:
                _insert_result(database, message)
            remove_sent_message(file)
            yield f"wrote rows of {file.name}"


def _build_order(database: sqlite3.Connection, row: sqlite3.Row) -> Json:
    key = (row["order_key"],)
    links = database.execute("select * from lab_line_specimens where order_key = ?", key).fetchall()
    lines = database.execute("select * from lab_order_lines where order_key = ? order by position", key)
    specimens = database.execute("select * from lab_specimens where order_key = ?", key)
    return {
        "key": row["order_key"],
        "requisition": {"value": row["requisition"]},
        "ordered_at": row["ordered_at"],
        "lines": [
            {
                "key": line["line_key"],
                "item": line["item"],
                "text": line["caption"],
                "identifiers": [{"value": line["identifier"]}],
                "specimens": [link["specimen_id"] for link in links if link["line_key"] == line["line_key"]],
            }
            for line in lines
        ],
        "specimens": [{"id": one["specimen_id"], "collected_at": one["collected_at"]} for one in specimens],
    }


def _insert_result(database: sqlite3.Connection, message: Json) -> None:
    if message.get("kind") != "rejection":
        database.execute("insert into lab_results (document, ready) values (?, 1)", (encode(message).decode("utf-8"),))
        return
    values = ("rejection", message["order"], int(message.get("collect_again", False)))
    number = database.execute("insert into lab_results (kind, order_key, collect_again) values (?, ?, ?)", values).lastrowid
    for position, entry in enumerate(message["not_performed"]):
        row = (number, position, entry["line"], entry["reason"])
        statement = "insert into lab_result_not_performed (result_id, position, line_key, reason) values (?, ?, ?, ?)"
        database.execute(statement, row)
    database.execute("update lab_results set ready = 1 where id = ?", (number,))


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
