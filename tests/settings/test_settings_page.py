"""docs/configuration.md against the models."""

from pathlib import Path

from lab_agent.cli.settings_page import built_in_adapters, page
from lab_agent.settings.keys import walk
from lab_agent.settings.root import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_current():
    current = page(built_in_adapters())
    assert PAGE.read_text(encoding="utf-8") == current, "run: python -m lab_agent.cli.settings_page > docs/configuration.md"


def test_every_key_has_a_description():
    assert [key.path for key in walk(Settings) if not key.field.description] == []


def test_every_key_of_the_built_in_adapters_has_a_description():
    models = built_in_adapters()
    assert "folder" in models
    assert [f"{name}.{key.path}" for name, model in models.items() for key in walk(model) if not key.field.description] == []
