from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.catalogue.spreadsheet.xlsx_writer import write_workbook
from tests.harness.paths import CATALOGUE


@pytest.fixture(scope="session")
def sample_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "catalogue.xlsx"
    write_workbook(path, csv_files.read_tables(CATALOGUE))
    return path


@pytest.fixture
def book(tmp_path: Path, sample_book: Path) -> Path:
    """The sample catalogue as a workbook, to be changed."""
    return Path(shutil.copy(sample_book, tmp_path / "catalogue.xlsx"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample catalogue as CSV files, to be changed."""
    return Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))
