"""A database to start from, and the table of what was told, at the end of the run."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.harness.paths import ROOT
from tests.incidents.laboratory import make_database
from tests.incidents.telling import format_table


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the current schema and one operator."""
    path = tmp_path_factory.mktemp("incidents") / "lab.db"
    settings = tomllib.loads((ROOT / "config" / "sandbox.toml").read_text())
    make_database(path, settings["store"]["encryption_keys"][0])
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what each channel told of each incident."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    rows = [
        (name, scores) for each in reports for name, scores in getattr(each, "user_properties", []) if isinstance(scores, dict)
    ]
    if rows:
        terminalreporter.section(
            "incidents: points told by each channel (cause, since, affected, mend), of those that can be known"
        )
        for line in format_table(rows):
            terminalreporter.write_line(line)
