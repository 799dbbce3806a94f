"""docs/configuration.md against the models."""

from lab_agent.settings.introspection import iter_keys
from lab_agent.settings.root import Settings
from tests.harness.paths import ROOT
from tools.docs.configuration import built_in_adapter_settings, settings_page

PAGE = ROOT / "docs" / "configuration.md"


def test_configuration_page_is_current():
    current = settings_page(built_in_adapter_settings())
    assert PAGE.read_text(encoding="utf-8") == current, "run: python -m tools.docs.configuration > docs/configuration.md"


def test_every_key_has_a_description():
    assert [key.path for key in iter_keys(Settings) if not key.field.description] == []


def test_every_built_in_adapter_key_has_a_description():
    models = built_in_adapter_settings()
    assert "folder" in models
    assert [f"{name}.{key.path}" for name, model in models.items() for key in iter_keys(model) if not key.field.description] == []
