"""Each dialect: `try` says what is missing, adds what is certain; with what a person fills in, the clinic reads every value."""

from __future__ import annotations

import asyncio
import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.results.mapping_loader import COLUMNS
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.root import Settings, load_settings
from lab_sandbox.partner.errors import Json
from tests.harness.clock import DEADLINE
from tests.harness.dialects import ORDER, Dialect, Person, bench_order, dialects, ordered_patient, put_order
from tests.harness.results import ResultsBench, open_bench
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
        assert done.code in {0, 1, 3}, done.err
        found = json.loads(done.out)
        assert found["complete"] is (done.code != 1)
        assert bool(found["uncoded_units"]) is (done.code == 3) or not found["complete"]
        for proposed in (found["missing"], found["added"]):
            missing |= {each["key"] for each in proposed["map"]}
            missing |= {each["cells"][next(iter(COLUMNS[each["file"]]))] for each in proposed["tables"]}
        if found["complete"]:
            break
        person.fill(found["missing"])
    return missing, found


FIRST, *OTHERS = (pytest.param(each, id=each.name) for each in dialects())


@pytest.mark.parametrize("dialect", [FIRST, *(pytest.param(*each.values, id=each.id, marks=pytest.mark.slow) for each in OTHERS)])
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

    assert (added_lines(lab, dialect), added_rows(lab, dialect)) == (tomllib.loads(dialect.lines), dialect.rows)
    asyncio.run(check_arrival(lab, dialect))


def added_lines(lab: LaboratoryFolder, dialect: Dialect) -> dict[str, Any]:
    """What the map and the adapter's settings say beyond those of `set_up`; what `settings` gave is among it."""
    found = tomllib.loads((lab.folder / "map.toml").read_text(encoding="utf-8"))
    before = tomllib.loads(_ADAPTER.format(more=""))["lis"]["hl7v2"]
    now = tomllib.loads(lab.config.read_text(encoding="utf-8"))["lis"]["hl7v2"]
    settings = {key: value for key, value in now.items() if key not in before}
    return {**found, **({"lis": {"hl7v2": settings}} if settings else {})}


def added_rows(lab: LaboratoryFolder, dialect: Dialect) -> dict[str, int]:
    """How many rows each mapping table has."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in (lab.folder / "tables").iterdir()}
    counts = {kind: len(list(csv.DictReader(text.splitlines()))) for kind, text in texts.items()}
    return {kind: count for kind, count in counts.items() if count}


async def check_arrival(lab: LaboratoryFolder, dialect: Dialect) -> None:
    """What was connected works on the wire: the messages are acknowledged, and the clinic reads every value of them."""
    settings = load_settings(lab.config)
    async with open_bench({"mappings": settings.results.mappings}, order=bench_order(dialect)) as bench:
        await bench.know_patient(**ordered_patient(dialect))
        answers = await send_over_mllp(settings, bench, dialect)
        assert {answer[:2] for answer in answers} <= {"AA", "CA"}, answers
        await bench.run_until_idle()
        assert not bench.event_texts("result_held")
        reports = await bench.clinic_reports()
        lines = await bench.line_states()
    read = [shown(one) for report in reports for one in report.observations]
    assert sorted(read) == sorted(dialect.becomes)
    assert bool(reports) is bool(dialect.becomes)
    assert ("completed" in lines) is any(report.status == "final" for report in reports)


def shown(observation: Json) -> tuple[str, str]:
    """The code of an Observation and its value, as `becomes` writes them."""
    code = observation["code"]["coding"][0]["code"]
    if "valueQuantity" in observation:
        quantity = observation["valueQuantity"]
        return code, f"{quantity.get('comparator', '')}{quantity['value']} {quantity.get('unit', '')}".strip()
    if "valueCodeableConcept" in observation:
        concept = observation["valueCodeableConcept"]
        codes = (f"{one.get('display', '')} {one['code']}".strip() for one in concept.get("coding", ()))
        return code, ", ".join(codes) or concept["text"]
    if "valueRatio" in observation:
        parts = observation["valueRatio"]
        return code, " : ".join(str(parts[name]["value"]) for name in ("numerator", "denominator"))
    if "valueRange" in observation:
        low, high = (observation["valueRange"][name] for name in ("low", "high"))
        return code, f"{low['value']} – {high['value']} {high.get('unit', '')}".strip()
    return code, observation["valueString"]


async def send_over_mllp(settings: Settings, bench: ResultsBench, dialect: Dialect) -> list[str]:
    """Send the messages to the adapter as it is configured now; MSA-1 and the reasons of the answers."""
    table = {**settings.lis.tables["hl7v2"], "results": {"role": "server", "port": 0}, "answer_results": "original"}
    adapter = Hl7v2Adapter(Hl7v2Settings.model_validate(table), "lis")
    await adapter.start(GuardedInbox(StoreInbox(bench.store, bench.clock, "lis"), "lis"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", adapter.ports[1])
        answers = []
        async with asyncio.timeout(DEADLINE):
            for message in dialect.messages:
                writer.write(b"\x0b" + message + b"\x1c\r")
                answer = (await reader.readuntil(b"\x1c\r"))[1:-2].decode(dialect.encoding, "replace").split("\r")
                answers.append(" ".join(segment[4:] for segment in answer if segment[:3] in {"MSA", "ERR"}))
        writer.close()
        await writer.wait_closed()
        return answers
    finally:
        await adapter.stop()
