"""compose.yaml, checked without a container engine: its structure, its files, and the settings that it passes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from lab_agent.settings.root import Settings
from lab_agent.settings.sources import read_environment
from lab_agent.settings.status import StatusSettings
from tests.harness.paths import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("upgrade", "agent", "api")


def known(name: str) -> bool:
    """Whether a credential names a setting."""
    model: Any = Settings
    for part in name.split("."):
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return False
        model = fields[part].annotation
    return True


def secrets(service: str) -> dict[str, str]:
    """The secrets of a service, by the name of the file that it sees."""
    return {each["target"]: each["source"] for each in SERVICES[service]["secrets"]}


def test_services_are_complete() -> None:
    assert set(SERVICES) == {"database", "upgrade", "agent", "api", "proxy"}


@pytest.mark.parametrize("name", SERVICES)
def test_root_is_read_only_and_privileges_are_dropped(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert any(each.split(":")[0] == "/tmp" for each in service["tmpfs"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert name == "database" or service["cap_drop"] == ["ALL"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", OURS)
def test_state_folder_can_be_written(name: str) -> None:
    """The image declares it as a volume; without a name, each start would leave one behind."""
    mounts = [*SERVICES[name]["tmpfs"], *(each.partition(":")[2] for each in SERVICES[name]["volumes"])]
    assert any(each.split(":")[0] == "/var/lib/lab-agent" for each in mounts)
    assert "./conf:/etc/lab-agent:ro" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", OURS)
def test_secrets_are_files_named_like_settings(name: str) -> None:
    assert SERVICES[name]["environment"]["CREDENTIALS_DIRECTORY"] == "/run/secrets"
    for target, source in secrets(name).items():
        assert known(target), target
        assert COMPOSE["secrets"][source]["file"].startswith("./secrets/")
    assert {"store.url", "store.encryption_keys"} <= secrets(name).keys()
    assert ("exchange.oauth.client_secret" in secrets(name)) == (name == "agent"), "only the agent signs in"


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_in_environment(name: str) -> None:
    for variable, value in SERVICES[name].get("environment", {}).items():
        assert variable.endswith("_FILE") or not re.search("PASSWORD|SECRET|KEY|TOKEN", variable), variable
        assert "@" not in str(value)


def test_variables_are_settings() -> None:
    for name in OURS:
        source = read_environment(SERVICES[name]["environment"], Settings.model_fields.keys())
        assert source.problems == ()
        assert all(known(setting) for setting in source.origins)
    assert SERVICES["agent"]["environment"]["LAB_AGENT_MONITORING__API_ADDRESS"] == "http://api:8482"


def test_programs_start_after_schema_is_upgraded() -> None:
    assert SERVICES["upgrade"]["command"] == ["db", "upgrade"]
    assert SERVICES["upgrade"]["restart"] == "no"
    assert SERVICES["upgrade"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    for name in ("agent", "api"):
        assert SERVICES[name]["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}


def test_every_lasting_service_has_a_health_check() -> None:
    """Agent and API have that of the image; the API's asks its own port."""
    assert "healthcheck" in SERVICES["database"]
    assert "healthcheck" in SERVICES["proxy"]
    assert SERVICES["api"]["environment"]["HEALTH_URL"] == "http://127.0.0.1:8482/healthz"
    assert "HEALTH_URL" not in SERVICES["agent"]["environment"]
    assert "HEALTHCHECK" in (ROOT / "Dockerfile").read_text()


def test_only_proxy_is_published_to_others() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    port = StatusSettings().port
    assert published == {"agent": [f"127.0.0.1:{port}:{port}"], "proxy": ["80:80", "443:443"]}
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert SERVICES["database"]["networks"] == ["store"]
    assert SERVICES["proxy"]["networks"] == ["front"]


def test_names_that_are_used_are_declared() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"], volume
        for secret in service.get("secrets", []):
            assert (secret if isinstance(secret, str) else secret["source"]) in COMPOSE["secrets"]


def test_proxy_passes_to_api_and_answers_health_check() -> None:
    text = (ROOT / "config" / "container" / "Caddyfile").read_text()
    assert "reverse_proxy api:8482" in text
    assert "{$API_DOMAIN} {" in text
    assert text.count("{") == text.count("}")
    assert SERVICES["proxy"]["healthcheck"]["test"][-1].rstrip("/") in text
    assert "./config/container/Caddyfile:/etc/caddy/Caddyfile:ro" in SERVICES["proxy"]["volumes"]
