from __future__ import annotations

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from tests.harness.paths import CATALOGUE


@pytest.fixture(scope="session")
def sample() -> Catalogue:
    return load_catalogue(CATALOGUE)
