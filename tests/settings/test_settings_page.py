"""docs/configuration.md against the models."""

from pathlib import Path

from lab_agent.cli.settings_page import built_in_adapter_settings, settings_page
from lab_agent.settings.keys import iter_keys
from lab_agent.settings.root import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_current():
    current = settings_page(built_in_adapter_settings())
    assert PAGE.read_text(encoding="utf-8") == current, "run: python -m lab_agent.cli.settings_page > docs/configuration.md"


def test_every_key_has_a_description():
    assert [key.path for key in iter_keys(Settings) if not key.field.description] == []


def test_every_key_of_the_built_in_adapters_has_a_description():
    models = built_in_adapter_settings()
    assert "folder" in models
    assert [f"{name}.{key.path}" for name, model in models.items() for key in iter_keys(model) if not key.field.description] == []
