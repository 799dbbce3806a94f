"""The probes of the machine, made of what the settings name: folders, files with secrets, ports, backups.

Which folders and ports a laboratory system has, its adapter's settings say: every path in them is on a disk of ours, and every
`port` is listened on unless its `role` is `client`. So it holds for adapters of others, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from lab_agent.monitoring.machine import BackupProbe, DiskProbe, ListeningAddress, PortsProbe, SecretFilesProbe
from lab_agent.monitoring.monitor import Probe
from lab_agent.ports.clock import Clock
from lab_agent.settings.root import Settings
from lab_agent.settings.secret_files import list_secret_files
from lab_agent.store.engine import sqlite_file
from lab_agent.store.unit_of_work import Store
from lab_agent.systemd_units import BACKUP, site_of, unit_name


def build_machine_probes(
    settings: Settings, config: Path | None, adapters: Mapping[str, BaseModel], clock: Clock, store: Store
) -> tuple[Probe, ...]:
    """Build them; `adapters` are the settings of the loaded adapters by name."""
    monitoring = settings.monitoring
    folders = tuple(list_folders(settings, adapters))
    probes: list[Probe] = [
        DiskProbe(lambda: folders, monitoring.disk_reserve),
        SecretFilesProbe(lambda: list_secret_files(config)),
        PortsProbe(tuple(list_addresses(settings, adapters)), config),
    ]
    unit = _backup_unit(config)
    if settings.backup.folder is not None or unit is not None:
        probes.append(BackupProbe(settings.backup.folder, timedelta(seconds=settings.backup.max_age), clock, store, unit))
    return tuple(probes)


def _backup_unit(config: Path | None) -> str | None:
    """The unit that makes backups; None where no unit of systemd reads these settings."""
    site = site_of(config)
    return None if site is None or shutil.which("systemctl") is None else unit_name(BACKUP, site)


def list_folders(settings: Settings, adapters: Mapping[str, BaseModel]) -> Iterator[Path]:
    """Give the folders and files that are written or read while the agent works, the most important first."""
    if (database := sqlite_file(settings.store.url)) is not None:
        yield database
    if settings.monitoring.log_folder is not None:
        yield settings.monitoring.log_folder
    for each in adapters.values():
        yield from _paths_in(each)
    if settings.backup.folder is not None:
        yield settings.backup.folder


def list_addresses(settings: Settings, adapters: Mapping[str, BaseModel]) -> Iterator[ListeningAddress]:
    """Give where the programs of this installation listen."""
    yield ListeningAddress(setting="status.port", host=settings.status.host, port=settings.status.port)
    yield ListeningAddress(setting="api.port", host=settings.api.host, port=settings.api.port)
    for name, each in adapters.items():
        yield from _addresses_in(f"lis.{name}", each)


def _paths_in(group: BaseModel) -> Iterator[Path]:
    for value in _values(group).values():
        if isinstance(value, Path):
            yield value
        elif isinstance(value, BaseModel):
            yield from _paths_in(value)


def _addresses_in(table: str, group: BaseModel) -> Iterator[ListeningAddress]:
    values = _values(group)
    if isinstance(port := values.get("port"), int) and values.get("role") != "client":
        yield ListeningAddress(setting=f"{table}.port", host=str(values.get("host", "")), port=port)
    for name, value in values.items():
        if isinstance(value, BaseModel):
            yield from _addresses_in(f"{table}.{name}", value)


def _values(group: BaseModel) -> dict[str, object]:
    return {name: getattr(group, name) for name in type(group).model_fields}
