"""A laboratory in a folder: settings, database, folders of the LIS; and the command line as a person meets it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab_agent.cli.app import run
from lab_agent.orders.records import OrderRecord
from lab_agent.results.records import ReportRecord
from lab_agent.shared.ids import OrderKey, ReportKey, ResourceId
from lab_agent.store.crypto import Cipher
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.databases import create_database
from tests.harness.paths import CATALOGUE

T = TypeVar("T")
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SETTINGS = f"""
[exchange]
base_url = "http://127.0.0.1:9/"
lab_codes_url = "http://codes.lab.example"
second_labels_system = "http://codes.lab.example/second-labels"
laboratory = "our-guid"
timeout = 5
connect_timeout = 1
read_timeout = 2
[exchange.oauth]
grant = "password"
auth_url = "http://127.0.0.1:9"
client_id = "client"
username = "login"
password = "hunter2"
[exchange.contracts.C-100]
[exchange.contracts.C-200]
[store]
url = "sqlite:///lab.db"
encryption_keys = ["{KEY}"]
[lis.folder]
orders = "orders"
results = "results"
[api]
catalogue = "{CATALOGUE}"
[status]
port = 0
environment = "sandbox"
"""


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Cli = Callable[..., CommandResult]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Cli]:
    """Run a command in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("LAB_AGENT_CONFIG", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)

    def command(*args: str, stdin: str = "", terminal: bool = False) -> CommandResult:
        monkeypatch.setattr("sys.argv", ["lab-agent", *args])
        monkeypatch.setattr("sys.stdin", _Terminal(stdin) if terminal else io.StringIO(stdin))
        code = run()
        shown = capsys.readouterr()
        return CommandResult(code, shown.out, shown.err)

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield command
    root.handlers[:] = handlers
    root.setLevel(level)


class LaboratoryFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "lab-agent.toml"
        self.url = f"sqlite:///{folder}/lab.db"

    def write(self, work: Callable[[UnitOfWork], T]) -> T:
        def committed(uow: UnitOfWork) -> T:
            return work(uow)

        async def whole() -> T:
            store = Store(self.url, Cipher(KEY))
            try:
                return await store.transact(committed)
            finally:
                await store.close()

        return asyncio.run(whole())


@pytest.fixture
def lab(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaboratoryFolder:
    """A laboratory that is set up and has seen nothing yet."""
    lab = LaboratoryFolder(tmp_path)
    lab.config.write_text(SETTINGS, encoding="utf-8")
    monkeypatch.setenv("LAB_AGENT_CONFIG", str(lab.config))
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    create_database(lab.folder / "lab.db")
    return lab


def edit(lab: LaboratoryFolder, before: str, after: str) -> None:
    text = lab.config.read_text()
    assert before in text
    lab.config.write_text(text.replace(before, after))


def said(done: CommandResult) -> dict[str, tuple[str, str, str]]:
    """The lines of `check --json` by what they are about: status, detail, hint."""
    return {line["name"]: (line["status"], line["detail"], line["hint"]) for line in json.loads(done.out)["checks"]}


SEEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_order(key: str, **fields: Any) -> OrderRecord:
    """An order that the agent has seen."""
    start: dict[str, Any] = {"key": OrderKey(key), "task_id": ResourceId(f"t-{key}"), "seen_at": SEEN, "changed_at": SEEN}
    return OrderRecord(**{**start, **fields})


def make_received(key: str, **fields: Any) -> ReportRecord:
    """A report that came in by the folder."""
    start: dict[str, Any] = {"key": ReportKey(key), "source": "folder", "message": key, "body": b"{}"}
    return ReportRecord(**{**start, "received_at": SEEN, "changed_at": SEEN, **fields})
