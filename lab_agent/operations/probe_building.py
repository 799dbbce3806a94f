"""Builds the probes that the settings ask for: the machine's, the API's, and laboratory systems that owe results.

Which folders and ports a laboratory system has, its adapter's settings say: every path in them is on a disk of ours, and every
`port` is listened on unless its `role` is `client`. So it holds for adapters of others, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from lab_agent.operations.api_callers import ApiCallersProbe
from lab_agent.operations.api_health import build_api_health
from lab_agent.operations.api_probes import build_api_probes
from lab_agent.operations.catalogue import CatalogueProbe
from lab_agent.operations.machine import BackupProbe, DiskProbe, ListeningAddress, PortsProbe, SecretFilesProbe
from lab_agent.operations.monitor import Probe
from lab_agent.operations.overdue import OverdueResultsProbe
from lab_agent.settings.root import Settings
from lab_agent.settings.secret_files import list_secret_files
from lab_agent.shared.clock import Clock
from lab_agent.shared.systemd_units import BACKUP, site_of, unit_name
from lab_agent.store.engine import sqlite_file
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store


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


def build_own_api_probes(settings: Settings, store: Store, clock: Clock, *, once: bool = False) -> Iterator[Probe]:
    """Build what asks this machine's lab-api, only where there is one. `once`: a single failure is told at once."""
    monitoring = settings.monitoring
    if health := build_api_health(settings.api, monitoring, proxy=settings.exchange.proxy):
        yield from build_api_probes(health, store, clock, timedelta(seconds=monitoring.api_interval), once=once)


def build_neighbour_probes(settings: Settings, store: Store, queries: Queries, clock: Clock) -> Iterator[Probe]:
    """Build the probes that look at what all machines share."""
    monitoring = settings.monitoring
    yield ApiCallersProbe(store, clock, monitoring.refused_callers_after)
    yield CatalogueProbe(store, clock, is_production=settings.status.environment == "production")
    yield OverdueResultsProbe(queries, clock, timedelta(seconds=monitoring.lis_silent_after))
