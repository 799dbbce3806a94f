"""A catalogue that a person imported stays in force through restarts, whatever becomes of the folder of the settings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database
from tests.harness.paths import CATALOGUE
from tests.incidents.laboratory import Laboratory

RESTARTS = 10


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    database = tmp_path / "lab.db"
    create_database(database)
    lab = Laboratory.create(database, {})
    try:
        yield lab
    finally:
        lab.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_imported_catalogue_survives_ten_restarts(lab: Laboratory, tmp_path: Path) -> None:
    """Of both programs; meanwhile the folder is the sample, then other content, then broken, then gone, and reloads come too."""
    lab.start("api", "agent")
    own = Path(shutil.copytree(CATALOGUE, tmp_path / "own"))
    name_contract(own, "Ours")
    imported = lab.run("catalogue", "import", str(own), "--yes", "--by", "anna")
    assert imported.returncode == 0, imported.stderr
    version, folder = load_catalogue(own).version, lab.workspace.folder / "config" / "catalogue"
    for number in range(RESTARTS):
        change(folder, number)
        lab.reload()
        lab.stop("api")
        lab.stop("agent")
        lab.start("api", "agent")
        assert httpx.get(f"{lab.workspace.api_url}/readyz", trust_env=False, timeout=DEADLINE).json()["catalogue"] == version
    assert f"version {version} from {own} since" in lab.run("check", "--files").stdout


def change(folder: Path, number: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if number == RESTARTS - 1:
        return
    shutil.copytree(CATALOGUE, folder)
    if number % 3 == 1:
        name_contract(folder, f"Changed {number}")
    elif number % 3 == 2:
        (folder / "items.csv").write_text("item\n", encoding="utf-8")


def name_contract(folder: Path, name: str) -> None:
    (folder / "contracts.csv").write_text(f"contract,name\nC-100,{name}\nC-200,B\n", encoding="utf-8")
