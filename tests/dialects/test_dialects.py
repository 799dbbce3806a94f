"""Each dialect: `try` says what is missing, adds what is certain, and after a person has filled in the rest all is delivered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab_agent.mappings.loader import COLUMNS
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
