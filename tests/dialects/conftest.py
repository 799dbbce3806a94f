"""A laboratory in a folder, and the command line."""

import shutil
from pathlib import Path

import pytest

from lab_agent.store.schema import upgrade
from tests.integration.cli.conftest import SETTINGS, Cli, LaboratoryFolder, cli

__all__ = ["cli", "empty_database", "lab"]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the schema and nothing in it, to be copied: making one takes longer than a test here."""
    path = tmp_path_factory.mktemp("database") / "lab.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def lab(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> LaboratoryFolder:
    """A laboratory that is set up and has seen nothing yet."""
    laboratory = LaboratoryFolder(tmp_path)
    laboratory.config.write_text(SETTINGS, encoding="utf-8")
    monkeypatch.setenv("LAB_AGENT_CONFIG", str(laboratory.config))
    shutil.copyfile(empty_database, tmp_path / "lab.db")
    return laboratory
