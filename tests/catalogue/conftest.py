from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.load import load_catalogue

SAMPLE = Path(__file__).parents[2] / "config" / "catalogue"


@pytest.fixture(scope="session")
def sample() -> Catalogue:
    return load_catalogue(SAMPLE)
