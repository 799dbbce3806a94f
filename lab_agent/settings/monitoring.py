"""`[monitoring]`: when something counts as wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, FilePath

from lab_agent.settings.groups import HttpAddress, Seconds, SettingsGroup


class MonitoringSettings(SettingsGroup):
    """When an alert opens. What each means, and how it is mended, is in docs/conditions.md."""

    interval: Seconds = 30.0
    """Seconds between two looks at operation, which open and close alerts."""
    heartbeat_interval: Seconds = 10.0
    """Seconds between two heartbeats of the worker in the database. After six without one, it counts as not running or frozen."""
    alert_after: Seconds = 1800.0
    """Seconds after which an alert says that a job has failed all that time, although it is tried again and again."""
    alert_after_attempts: Annotated[int, Field(ge=2)] = 20
    """Attempts after which an alert says that a job fails, even if it has failed for less than `alert_after`."""
    clock_tolerance: Seconds = 120.0
    """Seconds by which our clock and the exchange service's may differ. Beyond it no order is rejected for its times."""
    slow_after: Seconds = 10.0
    """Seconds that a call to the exchange service may take. An alert says so where half of the calls take longer."""
    disk_reserve: Annotated[int, Field(ge=0)] = 1_000_000_000
    """Bytes that must be free on the disks of the database, the log and the laboratory systems' folders."""
    log_folder: Path | None = None
    """Folder of the log, where its disk is to be watched, such as /var/log."""
    api_interval: Seconds = 60.0
    """Seconds between two looks whether the laboratory's API answers. It is looked at where `api.public_url`, `api.tokens` or
    `api.basic` is set."""
    api_address: HttpAddress | None = None
    """Address at which the agent reaches lab-api, without the prefix, such as http://10.0.0.5:8482. If not set, `api.host` and
    `api.port` on this machine."""
    public_api: bool = True
    """Whether to look at `api.public_url`, too. Set it to false where this machine cannot reach its own network from outside."""
    api_ca_file: FilePath | None = None
    """Certificates (PEM) of the authority of the public address, if it is not a public one."""
    refused_callers_after: Annotated[int, Field(ge=1)] = 10
    """Requests of callers of the laboratory's API, refused for one reason within an hour, of which more open an alert."""
    lis_silent_after: Seconds = 14_400.0
    """Seconds by which a laboratory system's results may be overdue, and nothing come from it, before an alert says so."""
