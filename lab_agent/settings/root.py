"""All settings, read once, checked at once, frozen.

Sources, the later ones winning: the TOML file, the environment (`LAB_AGENT_EXCHANGE__BASE_URL`), and the credentials folder of
systemd (a file named `exchange.oauth.password`). Relative paths in the settings are relative to the working directory. A
component gets its own group, never the root.

A program reads the groups that it uses (`load_groups`), and those alone are checked: its unit may lack the secrets of the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from lab_agent.settings.api import ApiSettings
from lab_agent.settings.cross_checks import find_contradictions, find_missing_login_secret
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.settings.groups import (
    BackupSettings,
    LisSettings,
    LoggingSettings,
    MonitoringSettings,
    ResultsSettings,
    RetentionSettings,
    RulesSettings,
    SettingsGroup,
    StoreSettings,
    WorkerSettings,
)
from lab_agent.settings.introspection import is_list
from lab_agent.settings.notify import NotifySettings
from lab_agent.settings.sources import (
    Source,
    credentials_folder,
    deep_merge,
    read_credentials,
    read_environment,
    read_toml_file,
)
from lab_agent.settings.status import StatusSettings
from lab_agent.shared.errors import Problem, SettingsError

_NO_FILE = Problem(
    "--config", "no settings file was given", "name one with --config or LAB_AGENT_CONFIG; `lab-agent init` creates one"
)
Groups = TypeVar("Groups", bound=SettingsGroup)


class StoreGroups(SettingsGroup):
    """The groups of a command that works on the database alone."""

    store: StoreSettings


class BackupGroups(StoreGroups):
    """The groups of `lab-agent backup`."""

    backup: BackupSettings = Field(default_factory=BackupSettings)


class UpgradeGroups(BackupGroups):
    """The groups of `lab-agent db upgrade`: a database that was lost has left backups, or a mark of its labels."""

    api: ApiSettings = Field(default_factory=ApiSettings)


class ApiGroups(StoreGroups):
    """The groups of lab-api: the contracts are in [exchange]; its barcodes are compared with those that [rules] allows."""

    exchange: ExchangeSettings
    api: ApiSettings = Field(default_factory=ApiSettings)
    rules: RulesSettings = Field(default_factory=RulesSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    logging: LoggingSettings = Field(default_factory=LoggingSettings)


class Settings(SettingsGroup):
    """All groups. Made by `load_settings`."""

    exchange: ExchangeSettings
    store: StoreSettings
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    lis: LisSettings = Field(default_factory=LisSettings)
    results: ResultsSettings = Field(default_factory=ResultsSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    status: StatusSettings = Field(default_factory=StatusSettings)
    rules: RulesSettings = Field(default_factory=RulesSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    backup: BackupSettings = Field(default_factory=BackupSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    logging: LoggingSettings = Field(default_factory=LoggingSettings)

    @property
    def report_system(self) -> str:
        """Identifier system of our DiagnosticReports."""
        return self._own_system("report")

    @property
    def observation_system(self) -> str:
        """Identifier system of our Observations."""
        return self._own_system("observation")

    @property
    def order_system(self) -> str:
        """Identifier system of the orders that our DiagnosticReports name: by it all reports of an order are found again."""
        return self._own_system("order")

    def _own_system(self, name: str) -> str:
        return f"{str(self.exchange.lab_codes_url).rstrip('/')}/{name}"


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None, *, requires_login: bool = True) -> Settings:
    """Read and check everything. Raises `SettingsError` with all problems at once.

    A program that never signs in at the service (`requires_login=False`) does not need the secret for it.
    """
    missing = find_missing_login_secret if requires_login else None
    return load_groups(Settings, path, environ, find_more=lambda settings: missing(settings.exchange) if missing else ())


def load_groups(
    model: type[Groups],
    path: Path | None,
    environ: Mapping[str, str] | None = None,
    *,
    is_given: Callable[[str], bool] = lambda _credential: True,
    find_more: Callable[[Groups], Iterable[Problem]] = lambda _groups: (),
) -> Groups:
    """Read and check the groups of `model`, and leave the others alone. Raises `SettingsError` with all problems at once.

    `is_given`: which files of the credentials folder count, by their names.
    """
    environ = os.environ if environ is None else environ
    groups = Settings.model_fields.keys()
    file = read_toml_file(path) if path else Source()
    if file.problems:
        raise SettingsError(file.problems)
    variables = read_environment(environ, groups)
    credentials = read_credentials(credentials_folder(environ), groups, is_given)
    texts = deep_merge(variables.table, credentials.table)
    problems = variables.problems + credentials.problems
    given = deep_merge(file.table, _split_lists(Settings, texts))
    try:
        # An unknown table is told, whoever reads the file.
        found = model.model_validate({key: each for key, each in given.items() if key in model.model_fields or key not in groups})
    except ValidationError as exc:
        # Not at the top: what explains a wrong setting brings the schemas of lab orders with it.
        from lab_agent.settings.errors import to_problems  # noqa: PLC0415

        invalid = to_problems(exc, Settings, {**variables.origins, **credentials.origins})
        raise SettingsError((*(() if path else (_NO_FILE,)), *problems, *invalid)) from None
    problems += (*find_contradictions(dict(found)), *find_more(found))
    if problems:
        raise SettingsError(problems)
    return found


def _split_lists(annotation: Any, value: Any) -> Any:
    """Variables and credentials are texts: where the key takes a list, its items are separated by commas or white space."""
    if isinstance(value, str):
        return value.replace(",", " ").split() if is_list(annotation) else value
    fields = getattr(annotation, "model_fields", {})
    return {name: _split_lists(fields[name].annotation, item) if name in fields else item for name, item in value.items()}
