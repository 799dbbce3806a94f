"""A database to start from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.harness.paths import ROOT
from tests.incidents.laboratory import make_database


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the current schema and one operator."""
    path = tmp_path_factory.mktemp("incidents") / "lab.db"
    settings = tomllib.loads((ROOT / "config" / "sandbox.toml").read_text())
    make_database(path, settings["store"]["encryption_keys"][0])
    return path
