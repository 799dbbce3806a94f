"""Each dialect: `try` says what is missing, adds what is certain, and after a person has filled in the rest all is delivered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab_agent import bootstrap
from lab_agent.domain.ids import ReportKey
from lab_agent.domain.records import ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.mappings.loader import COLUMNS
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.queries import SqlQueries
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow.result_inbox import StoreInbox
from lab_agent.workflow.result_matching import ReportMatcher
from tests.harness.dialects import ORDER, Dialect, Person, dialects, put_order
from tests.integration.cli.conftest import SETTINGS, Cli, LaboratoryFolder

_ROUNDS = 5
_ADAPTER = """
[lis.hl7v2]
orders = {{ role = "client", port = 6661 }}
folder = "hl7v2"
duplicates = "msh10"
mapping = "map.toml"
{more}
[results]
mappings = "tables"
"""


def set_up(lab: LaboratoryFolder, dialect: Dialect) -> Path:
    """A laboratory that has connected nothing yet; the file with the captured message."""
    own = "".join(f"{key} = {json.dumps(value)}\n" for key, value in dialect.table.get("settings", {}).items())
    lab.config.write_text(SETTINGS + _ADAPTER.format(more=own), encoding="utf-8")
    (lab.folder / "map.toml").write_text("# The map of this laboratory.\n", encoding="utf-8")
    (lab.folder / "tables").mkdir()
    for kind in dialect.table.get("tables", []):
        name = f"{kind}.csv"
        (lab.folder / "tables" / name).write_text(",".join(COLUMNS[name]) + "\n", encoding="utf-8")
    lab.write(lambda uow: put_order(uow, dialect))
    file = lab.folder / f"{dialect.name}.hl7"
    file.write_bytes(dialect.captured)
    return file


def connect(cli: Cli, lab: LaboratoryFolder, dialect: Dialect, file: Path) -> tuple[set[str], dict[str, Any]]:
    """Try, add and fill in until nothing is missing: all that was ever missing, and what the last try found."""
    person = Person(dialect, lab.config, lab.folder / "map.toml", lab.folder / "tables")
    missing: set[str] = set()
    found: dict[str, Any] = {}
    for write in ((), *[("--write", "--yes")] * _ROUNDS):
        done = cli("adapter", "hl7v2", "try", str(file), "--json", *write)
        assert done.code in {0, 1}, done.err
        found = json.loads(done.out)
        assert found["complete"] is (done.code == 0)
        for proposed in (found["missing"], found["added"]):
            missing |= {each["key"] for each in proposed["map"]}
            missing |= {each["cells"][next(iter(COLUMNS[each["file"]]))] for each in proposed["tables"]}
        if found["complete"]:
            break
        person.fill(found["missing"])
    return missing, found


def parameters() -> Iterator[Any]:
    """Every dialect; one that waits for a part of the reader is not expected to pass yet."""
    for each in dialects():
        waits = each.table.get("until")
        yield pytest.param(each, id=each.name, marks=[pytest.mark.xfail(reason=waits)] if waits else [])


@pytest.mark.parametrize("dialect", list(parameters()))
def test_dialect_is_connected_by_what_try_proposes(cli: Cli, lab: LaboratoryFolder, dialect: Dialect) -> None:
    file = set_up(lab, dialect)
    missing, found = connect(cli, lab, dialect, file)
    reasons = [part["reason"] for message in found["messages"] for part in message["parts"] if part["reason"]]
    assert found["complete"], (reasons, found["missing"])
    assert set(dialect.lacks) <= missing
    parts = [part for message in found["messages"] for part in message["parts"]]
    values = [(row["sent_as"], row["value"]) for part in parts for row in part["observations"]]
    assert values == [(code, value) for code, value in dialect.becomes]
    assert {part["order"] for part in parts if part["observations"]} <= {ORDER}

    asyncio.run(check_arrival(lab, dialect))


async def check_arrival(lab: LaboratoryFolder, dialect: Dialect) -> None:
    """What was connected works on the wire: the messages are acknowledged, and every report of them meets its order."""
    settings = load_settings(lab.config)
    store = bootstrap.open_store(settings)
    try:
        answers = await send_over_mllp(settings, store, dialect)
        assert {answer[:2] for answer in answers} <= {"AA", "CA"}, answers
        catalogues = await bootstrap.load_catalogues(settings, store)
        matcher = bootstrap.build_manual_matcher(settings, catalogues)
        waiting = await SqlQueries(store).reports(limit=20)
        matched = [await store.run(partial(match, matcher, summary.key)) for summary in waiting.items]
    finally:
        await store.close()
    assert [(report.state, report.reason) for report in matched] == [(ReportState.MATCHED, None)] * len(matched)
    assert {report.order for report in matched} == ({ORDER} if dialect.becomes else set())


def match(matcher: ReportMatcher, key: ReportKey, uow: UnitOfWork) -> ReportRecord:
    report = matcher.match(uow, key, datetime.now(UTC))
    uow.commit()
    return report


async def send_over_mllp(settings: Settings, store: SqlStore, dialect: Dialect) -> list[str]:
    """Send the messages to the adapter as it is configured now; MSA-1 and the reasons of the answers."""
    table = settings.lis.tables["hl7v2"] | {"results": {"role": "server", "port": 0}, "answer_results": "original"}
    adapter = Hl7v2Adapter(Hl7v2Settings.model_validate(table), "hl7v2")
    inbox = StoreInbox(store, bootstrap.SystemClock(), "hl7v2", lambda: None)
    await adapter.start(GuardedInbox(inbox, "hl7v2"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", adapter.ports[1])
        answers = []
        async with asyncio.timeout(10):
            for message in dialect.messages:
                writer.write(b"\x0b" + message + b"\x1c\r")
                answer = (await reader.readuntil(b"\x1c\r"))[1:-2].decode(dialect.encoding, "replace").split("\r")
                answers.append(" ".join(segment[4:] for segment in answer if segment[:3] in {"MSA", "ERR"}))
        writer.close()
        await writer.wait_closed()
        return answers
    finally:
        await adapter.stop()
