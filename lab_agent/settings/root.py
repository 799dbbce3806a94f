"""The settings of the whole house, read once, checked at once, frozen.

Sources, the later ones winning: the TOML file, the environment (`LAB_AGENT_EXCHANGE__BASE_URL`), and the credentials folder of
systemd (a file named `exchange.oauth.password`). Relative paths in the settings are relative to the working directory. A room
gets its own group, never the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from lab_agent.errors import Problem, SettingsError
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.cross_checks import find_contradictions, find_missing_login_secret
from lab_agent.settings.errors import to_problems
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.settings.groups import (
    LisSettings,
    LoggingSettings,
    ResultsSettings,
    RetentionSettings,
    RulesSettings,
    StatusSettings,
    StoreSettings,
    WorkerSettings,
)
from lab_agent.settings.introspection import is_list
from lab_agent.settings.sources import (
    Source,
    credentials_folder,
    process_environment,
    read_credentials,
    read_environment,
    read_toml_file,
)

_NO_FILE = (
    Problem("--config", "no settings file was named", "name one with --config or LAB_AGENT_CONFIG; `lab-agent init` makes one"),
)


class Settings(BaseSettings):
    """All groups. Made by `load_settings`; made directly, it takes what it is given and looks nowhere else."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    exchange: ExchangeSettings
    store: StoreSettings
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    lis: LisSettings = Field(default_factory=LisSettings)
    results: ResultsSettings = Field(default_factory=ResultsSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    status: StatusSettings = Field(default_factory=StatusSettings)
    rules: RulesSettings = Field(default_factory=RulesSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    logging: LoggingSettings = Field(default_factory=LoggingSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 — the library's own signature
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take the values given, and nothing from the environment: `load_settings` lines up the sources."""
        return (init_settings,)

    @property
    def report_system(self) -> str:
        """Identifier system of our DiagnosticReports."""
        return self.results.report_system or f"{str(self.exchange.lab_codes_url).rstrip('/')}/report"

    @property
    def observation_system(self) -> str:
        """Identifier system of our Observations."""
        return self.results.observation_system or f"{str(self.exchange.lab_codes_url).rstrip('/')}/observation"


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None, *, requires_login: bool = True) -> Settings:
    """Read and check everything. Raises `SettingsError` with all problems at once.

    A program that never signs in at the service (`signs_in=False`) does not need the secret for it, and should not be given it.
    """
    environ = process_environment() if environ is None else environ
    groups = Settings.model_fields.keys()
    file = read_toml_file(path) if path else Source()
    if file.problems:
        raise SettingsError(file.problems)
    given = [
        file,
        _split_lists(read_environment(environ, groups)),
        _split_lists(read_credentials(credentials_folder(environ), groups)),
    ]
    problems = tuple(problem for source in given for problem in source.problems)
    origins = {key: origin for source in given for key, origin in source.origins.items()}
    layers = tuple(InitSettingsSource(Settings, source.table) for source in reversed(given))
    try:
        settings = Settings(_build_sources=(layers, {}))
    except ValidationError as exc:
        raise SettingsError(_NO_FILE[: path is None] + problems + to_problems(exc, Settings, origins)) from None
    problems += find_contradictions(
        settings.exchange, settings.worker, settings.lis, settings.results, settings.api, settings.rules
    )
    if requires_login:
        problems += tuple(find_missing_login_secret(settings.exchange))
    if problems:
        raise SettingsError(problems)
    return settings


def _split_lists(source: Source) -> Source:
    """Where the environment or a credential sets a list, its text is the list's words."""
    table = {name: _split_words(Settings.model_fields[name].annotation, value) for name, value in source.table.items()}
    return Source(table, source.problems, source.origins)


def _split_words(annotation: Any, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(",", " ").split() if is_list(annotation) else value
    fields = getattr(annotation, "model_fields", {})
    return {name: _split_words(fields[name].annotation, item) if name in fields else item for name, item in value.items()}
