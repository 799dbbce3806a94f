"""Whether the settings are valid for the other units of this installation, with the variables and credentials of each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks
from lab_agent.settings.root import ApiGroups, BackupGroups, StoreGroups, load_groups
from lab_agent.settings.sources import CREDENTIALS_VARIABLE, credentials_folder
from lab_agent.shared.errors import InputError, SettingsError
from lab_agent.shared.systemd_units import (
    API,
    BACKUP,
    Service,
    credential_names,
    parse_unit,
    read_unit,
    settings_file,
    site_of,
    unit_name,
    unit_variables,
)

_GROUPS: Mapping[str, type[StoreGroups]] = {API: ApiGroups, BACKUP: BackupGroups}
"""What the programs of the other units read."""


def check_units(config: Path | None) -> list[CheckResult]:
    """Try each unit that is installed beside the worker's; nothing where no unit reads these settings."""
    site = site_of(config)
    return [] if site is None else [line for program in _GROUPS for line in _check_unit(program, site)]


def _check_unit(program: str, site: str) -> list[CheckResult]:
    unit = unit_name(program, site)
    try:
        service = parse_unit(read_unit(unit), site)
    except InputError as exc:
        return [CheckResult(unit, CheckStatus.SKIPPED, str(exc))]
    loaded, given = credential_names(service), _own_credentials()
    try:
        load_groups(
            _GROUPS[program], settings_file(service), _environment(service), is_given=lambda name: _belongs_to(name, loaded)
        )
    except SettingsError as exc:
        if unknown := [each for each in loaded if not any(_belongs_to(name, (each,)) for name in given)]:
            detail = f"not tried: {', '.join(unknown)} is given to this unit alone"
            return [CheckResult(unit, CheckStatus.SKIPPED, detail, f"`systemctl status {unit}` says how it started")]
        return failed_checks(unit, exc)
    return [CheckResult(unit, CheckStatus.OK, "the settings are valid with what the unit gets")]


def _belongs_to(name: str, loaded: Sequence[str]) -> bool:
    """Whether a credential is one of those, or of a folder among them."""
    return any(name == each or name.startswith(f"{each}_") for each in loaded)


def _own_credentials() -> list[str]:
    folder = credentials_folder(os.environ)
    return [] if folder is None or not folder.is_dir() else [each.name for each in folder.iterdir()]


def _environment(service: Service) -> Mapping[str, str]:
    """What the unit sets, and the credentials that this process got, of which the unit's own are taken."""
    own = os.environ.get(CREDENTIALS_VARIABLE)
    return {**unit_variables(service), **({CREDENTIALS_VARIABLE: own} if own else {})}
