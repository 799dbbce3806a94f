"""What is kept of running programs and paused laboratory systems."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lab_agent.domain.adapter_pauses import PAUSE_KEY_PREFIX, AdapterPause, pause_key
from lab_agent.domain.programs import ProgramKind, RunningProgram, SchemaVersions

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PROGRAM = RunningProgram(name="n", kind=ProgramKind.API, host="h", pid=17, schema="0042", beat_at=NOW, stale_after=30.0)
STORED = {
    "name": "n",
    "kind": "api",
    "host": "h",
    "pid": 17,
    "schema": "0042",
    "beat_at": "2026-01-02T00:00:00+00:00",
    "stale_after": 30.0,
}


@pytest.mark.parametrize(("seconds", "lives"), [(0, True), (30, True), (31, False), (-30, True), (-31, False)])
def test_program_lives_while_its_sign_is_fresh(seconds: float, lives: bool) -> None:
    assert PROGRAM.lives(NOW + timedelta(seconds=seconds)) is lives


def test_stored_program_reads_back_without_what_is_new() -> None:
    assert json.loads(PROGRAM.to_json()) == STORED
    assert RunningProgram.from_json(json.dumps(STORED | {"colour": "red"})) == PROGRAM


def test_schema_is_newer_than_the_program() -> None:
    assert [SchemaVersions(each, "0042").is_newer for each in ("0041", "0042", "0043")] == [False, False, True]
    assert str(PROGRAM) == "lab-api on h (process 17, schema 0042)"


def test_stored_pause_reads_back() -> None:
    pause = AdapterPause(system="lis", since=NOW, by="Ölga")
    assert pause.to_json() == '{"since": "2026-01-02T00:00:00+00:00", "by": "Ölga"}'
    assert AdapterPause.from_json("lis", pause.to_json()) == pause
    assert pause_key("lis") == "lis.paused/lis"
    assert PAUSE_KEY_PREFIX == "lis.paused/"
