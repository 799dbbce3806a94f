"""The settings files in config/ against the models: the example names every key, the demo's and the templates hold."""

import re
import tomllib

import pytest

from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.rules.engine import check_severities
from lab_agent.settings.introspection import ARRAY_SUFFIX, NAME_PLACEHOLDER, iter_keys
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared.errors import SettingsError
from tests.harness.paths import ROOT

CONFIG = ROOT / "config"
EXAMPLE = CONFIG / "lab-agent.example.toml"
COMMENTED_KEY = re.compile(r'^# ((?:[a-z_]+|"[a-z.-]+") = )', re.MULTILINE)


def uncommented(text: str) -> str:
    return COMMENTED_KEY.sub(r"\1", text)


def keys_in(table: dict, path: str = "") -> set[str]:
    """Dotted keys of a TOML table, with the names of the operator's choice replaced as `walk` writes them."""
    found: set[str] = set()
    for name, value in table.items():
        here = f"{path}.{name}" if path else name
        here = re.sub(r"^(exchange\.contracts|notify\.(?:email|webhook|command))\.[^.]+", rf"\1.{NAME_PLACEHOLDER}", here)
        if isinstance(value, dict) and here not in {"rules.severities", "status.oidc.roles"}:
            found |= keys_in(value, here)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            found |= {key for item in value for key in keys_in(item, here + ARRAY_SUFFIX)}
        else:
            found.add(here)
    return found


def test_example_with_every_commented_key_is_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n", encoding="utf-8")
    full = tmp_path / "full.toml"
    full.write_text(uncommented(EXAMPLE.read_text(encoding="utf-8")), encoding="utf-8")
    settings = load_settings(full, {})
    assert settings.rules.severities
    assert check_severities(settings.rules.severities) == ()


def test_example_names_exactly_the_known_keys():
    named = keys_in(tomllib.loads(uncommented(EXAMPLE.read_text(encoding="utf-8"))))
    known = {
        key.path for key in iter_keys(Settings) if key.path not in {"exchange.contracts", "exchange.paths", "exchange.oauth"}
    }
    known -= {path for path in known if any(other.startswith((f"{path}.", f"{path}{ARRAY_SUFFIX}.")) for other in known)}
    adapters = {path for path in named if re.match(r"lis\.\w+\.", path)}
    assert named - adapters == known
    assert {".".join(path.split(".")[:3]) for path in adapters} == {
        f"lis.folder.{name}" for name in ("adapter", *FolderSettings.model_fields)
    }


def test_demo_settings_are_valid():
    assert set(load_settings(CONFIG / "sandbox.toml", {}).exchange.contracts) == {"C-100", "C-200"}


@pytest.mark.parametrize("name", ["stage", "production"])
def test_completed_template_is_valid(name, tmp_path):
    text = (CONFIG / f"{name}.toml").read_text(encoding="utf-8")
    filled = re.sub(r"<SHA-256[^>]*>", "0" * 64, text)
    filled = re.sub(r"<[^>]+>", "filled-in", filled)
    path = tmp_path / "filled.toml"
    path.write_text(filled, encoding="utf-8")
    secrets = {
        "LAB_AGENT_EXCHANGE__OAUTH__PASSWORD": "secret",
        "LAB_AGENT_STORE__ENCRYPTION_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    }
    settings = load_settings(path, secrets)
    assert settings.results.documents == ("none" if name == "stage" else "upload")
    assert settings.worker.mode == "observe"
    assert settings.status.environment == name
    assert (settings.api.catalogue.name, settings.results.mappings.name) == ("catalogue", "mappings")
    assert settings.api.catalogue.parent == settings.results.mappings.parent


@pytest.mark.parametrize("name", ["stage", "production"])
def test_unfilled_template_reports_missing_values(name):
    with pytest.raises(SettingsError) as caught:
        load_settings(CONFIG / f"{name}.toml", {})
    places = {problem.where for problem in caught.value.problems}
    assert {"exchange.base_url", "exchange.lab_codes_url", "store.encryption_keys", "api.tokens.0.sha256"} <= places
