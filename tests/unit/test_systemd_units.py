"""Which units an installation has, and what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.systemd_units import credential_names, parse_unit, settings_file, site_of, unit_name, unit_variables


@pytest.mark.parametrize(
    ("config", "site"),
    [
        ("/etc/lab-agent/lab-agent.toml", ""),
        ("/etc/lab-agent-stage/lab-agent.toml", "stage"),
        ("/etc/lab-agent-/lab-agent.toml", ""),
        ("/etc/lab-agent/other.toml", None),
        ("/etc/lab/lab-agent.toml", None),
        ("/srv/lab-agent-stage/lab-agent.toml", None),
        ("/srv/lab-agent/lab-agent.toml", None),
    ],
)
def test_site_is_of_the_settings_folder(config: str, site: str | None) -> None:
    assert site_of(Path(config)) == site
    assert site_of(None) is None


def test_unit_of_a_site_is_a_template() -> None:
    assert [unit_name("lab-api", site) for site in (None, "", "stage")] == [
        "lab-api.service",
        "lab-api.service",
        "lab-api@stage.service",
    ]


def test_unit_says_what_its_program_gets() -> None:
    service = parse_unit(
        '[Service]\nExecStart=/x run --config /etc/%i.toml\nEnvironment="A=1 2" B=3\nEnvironment=C=\n'
        "LoadCredential=settings:/etc/folder\nSetCredential=one:text\n",
        "stage",
    )
    assert settings_file(service) == Path("/etc/stage.toml")
    assert unit_variables(service) == {"A": "1 2", "B": "3", "C": ""}
    assert credential_names(service) == ("settings", "one")
