"""The messages of tests/dialects as a person captures them, an order that they meet, and the person who fills in the rest."""

from __future__ import annotations

import csv
import re
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab_agent.results.mapping_loader import COLUMNS
from lab_agent.results.trial.map_lines import TomlLine, add_lines, split_table
from lab_agent.shared import exact_json
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.store.unit_of_work import UnitOfWork
from tests.harness import results
from tests.harness.paths import ROOT
from tests.harness.results import BenchOrder, make_order

FOLDER = ROOT / "tests" / "dialects"
ORDER = OrderKey("RDIALECTAAAAAAAA")
_SINCE = datetime(2026, 3, 1, tzinfo=UTC)


def _entry(name: str, default: Any) -> Any:
    return property(lambda dialect: dialect.table.get(name, default))


@dataclass(frozen=True)
class Dialect:
    """One message, and what dialects.toml says of it."""

    name: str
    table: dict[str, Any]
    encoding = _entry("encoding", "utf-8")
    tests = _entry("tests", {"100": "X"})
    """Nomenclature code → the laboratory's code."""
    barcode = _entry("barcode", "1000000099")
    lines = _entry("lines", "")
    """The lines of the map and the settings with which the messages are delivered."""
    rows = _entry("rows", {})
    """How many rows of each mapping table they need."""
    lacks = _entry("lacks", [])

    @property
    def messages(self) -> list[bytes]:
        text = (FOLDER / f"{self.name}.hl7").read_text(encoding="utf-8").replace("@R@", ORDER)
        for number in range(len(self.tests)):
            text = text.replace(f"@L{number + 1}@", line_key(number))
        data = text.encode(self.encoding).replace(b"\n", b"\r")
        return re.split(rb"(?<=\r)(?=MSH\|)", data)

    @property
    def captured(self) -> bytes:
        """The file as somebody captured it: `capture` says how."""
        match self.table.get("capture", "crlf"):
            case "frame":
                return b"".join(b"\x0b" + message + b"\x1c\r" for message in self.messages)
            case "bare":
                return b"".join(self.messages).replace(b"\r", b"\n")
            case _:
                return b"".join(self.messages).replace(b"\r", b"\r\n")

    @property
    def becomes(self) -> list[tuple[str, str]]:
        return [(code, value) for code, value in self.table["becomes"]]

    def fill(self, table: str, key: str) -> str | None:
        """What a person answers for a key of the map, or of one of the tables (`codes`, `units`, `answers`)."""
        given = self.table.get("fill", {})
        found = given.get(key) if table == "map" else given.get(table, {}).get(key)
        return None if found is None else str(found)


def dialects() -> list[Dialect]:
    tables = tomllib.loads((FOLDER / "dialects.toml").read_text(encoding="utf-8"))
    return [Dialect(name, table) for name, table in tables.items()]


def line_key(number: int) -> LineKey:
    return LineKey(f"LDIALECTAAAAAAA{'ABCDEFG'[number]}")


def put_order(uow: UnitOfWork, dialect: Dialect) -> None:
    barcode = dialect.barcode
    lines = [
        {"key": line_key(number), "item": item, "lab_code": code, "specimens": ["s1"]}
        for number, (item, code) in enumerate(dialect.tests.items())
    ]
    tree = {"lines": lines, "specimens": [{"id": "s1", "containers": [{"barcode": barcode}]}]}
    fields = {"counterparty": "clinic", "patient_reference": "Patient/p1", "received": exact_json.dumps([])}
    order = make_order(ORDER, "t1", tree, at=_SINCE, **fields)
    records = {line_key(number): (item, f"t1-{number}", f"pr-{number}") for number, item in enumerate(dialect.tests)}
    results.put_order(uow, order, records, {barcode: line_key(0)}, "s1", dialect.table.get("accession"), "hl7v2")


def ordered_patient(dialect: Dialect) -> dict[str, Any]:
    """The patient of the order as the clinic wrote it: the one that the messages name, with the names in another spelling."""
    segments = dialect.messages[0].decode(dialect.encoding).split("\r")
    names = [fields[5].split("^") for each in segments if each.startswith("PID|") and len(fields := each.split("|")) > 5]
    return {"family": names[0][0].swapcase(), "given": [names[0][1].swapcase()]} if names else {}


def bench_order(dialect: Dialect) -> BenchOrder:
    return BenchOrder(
        key=ORDER,
        lab_codes=dialect.tests,
        line_keys=tuple(map(line_key, range(len(dialect.tests)))),
        barcode=dialect.barcode,
        accession=dialect.table.get("accession"),
    )


@dataclass(frozen=True)
class Person:
    """Somebody who fills in by hand what `try` could not know: in the map, the settings and the tables."""

    dialect: Dialect
    config: Path
    map_file: Path
    tables: Path

    def fill(self, found: dict[str, Any]) -> list[str]:
        """Write what is known of the empty places; what stays empty."""
        return [*self._fill_map(found["map"]), *self._fill_tables(found["tables"])]

    def _fill_map(self, suggestions: list[dict[str, Any]]) -> list[str]:
        unknown = []
        for each in suggestions:
            value = self.dialect.fill("map", each["key"])
            if each["value"] is None and value is None:
                unknown.append(each["key"])
            elif each["value"] is None:
                table = split_table(each["table"])
                path = self.config if table[0] == "lis" else self.map_file
                before = path.read_text(encoding="utf-8") if path.exists() else ""
                is_list = value is not None and value.startswith("[")
                line = TomlLine(table, each["key"], f"{value}" if is_list else f'"{value}"')
                path.write_text(add_lines(before, [line]), encoding="utf-8")
        return unknown

    def _fill_tables(self, rows: list[dict[str, Any]]) -> list[str]:
        unknown = []
        for each in rows:
            columns = list(COLUMNS[each["file"]])
            cells = dict(each["cells"])
            if all(cells.get(name) for name, must in COLUMNS[each["file"]].items() if must):
                continue
            value = self.dialect.fill(each["file"].removesuffix(".csv"), cells[columns[0]])
            if value is None:
                unknown.append(cells[columns[0]])
                continue
            if each["file"] == "answers.csv":
                cells["system"], _, cells["code"] = value.rpartition("|")
            else:
                cells[columns[1]] = value
            self._append(self.tables / each["file"], [cells.get(name, "") for name in columns])
        return unknown

    def _append(self, path: Path, row: list[str]) -> None:
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(",".join(COLUMNS[path.name]) + "\n", encoding="utf-8")
        with path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
