"""A fresh working folder for one demo: a copy of the settings with ports that are free, folders, logs, an empty journal.

The programs run in it, so that every relative path of the settings lies in it, and nothing of an earlier run is met.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_sandbox.config import ConfigError, SandboxConfig, load_config
from lab_sandbox.demo.connections import FOLDER_CONNECTION, LisConnection, build_connection, configure_connection
from lab_sandbox.demo.ports import HOST, choose_ports
from lab_sandbox.demo.trouble import DemoError

AGENT_CONFIG_FILE, SERVICE_CONFIG_FILE = "sandbox.toml", "sandbox-service.toml"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where one demo runs. `agent` are the agent's settings as TOML tables, `service` those of the exchange service."""

    folder: Path
    agent_config: dict[str, Any]
    service_config: SandboxConfig
    connection: LisConnection = FOLDER_CONNECTION

    @property
    def agent_settings(self) -> Path:
        """The settings file of the agent and the laboratory's API."""
        return self.folder / "config" / AGENT_CONFIG_FILE

    @property
    def service_settings(self) -> Path:
        """The settings file of the exchange service."""
        return self.folder / "config" / SERVICE_CONFIG_FILE

    @property
    def orders(self) -> Path:
        """Where orders for the laboratory system are put, by the agent or by what brings them."""
        return self._lis_exchange_folder("orders")

    @property
    def results(self) -> Path:
        """Where the laboratory system puts results."""
        return self._lis_exchange_folder("results")

    def _lis_exchange_folder(self, name: str) -> Path:
        return (
            self.lis / name if self.connection.kind != "folder" else self.folder / str(self.agent_config["lis"]["folder"][name])
        )

    @property
    def lis(self) -> Path:
        """The stand-in laboratory system's own folder."""
        return self.folder / "lis"

    @property
    def logs(self) -> Path:
        """One log for each program."""
        return self.folder / "logs"

    @property
    def service_url(self) -> str:
        """Address of the exchange service, ending in a slash."""
        return self.service_config.resolve_addresses().base_url

    @property
    def api_url(self) -> str:
        """Address of the laboratory's API."""
        return f"http://{HOST}:{self.agent_config['api']['port']}"

    @property
    def status_url(self) -> str:
        """Address of the status page."""
        return f"http://{HOST}:{self.agent_config['status']['port']}"


def create_workspace(config: Path, *, other_ports: bool = False, lis: str = "folder") -> Workspace:
    """Makes a working folder from the settings folder `config`; `DemoError` if that is not one.

    `other_ports` takes free ports at once, so that several demos can start side by side; `lis` is how the laboratory system is
    connected.
    """
    for name in (AGENT_CONFIG_FILE, SERVICE_CONFIG_FILE):
        if not (config / name).is_file():
            raise DemoError(
                f"{config / name}: there is no such file; run the demo in the root of the checkout, or use --config-dir"
            )
    ports = choose_ports(_configured_ports(config), use_other_ports=other_ports)
    folder = Path(tempfile.mkdtemp(prefix="lab-demo-"))
    shutil.copytree(config, folder / "config")
    _replace_ports(folder / "config", ports)
    way = build_connection(lis, folder, other_ports=other_ports)
    configure_connection(folder / "config" / AGENT_CONFIG_FILE, way)
    place = Workspace(
        folder,
        _read_toml(folder / "config" / AGENT_CONFIG_FILE),
        _read_service_config(folder / "config" / SERVICE_CONFIG_FILE),
        way,
    )
    for path in (place.orders, place.results, place.lis, place.logs):
        path.mkdir(parents=True, exist_ok=True)
    return place


def _configured_ports(config: Path) -> list[int]:
    """The ports of the settings: service, laboratory API, status page. `DemoError` for settings that cannot be a demo's."""
    agent, service = _read_toml(config / AGENT_CONFIG_FILE), _read_service_config(config / SERVICE_CONFIG_FILE)
    try:
        own = [int(agent[table]["port"]) for table in ("api", "status")]
        _ = agent["lis"]["folder"]["orders"], agent["lis"]["folder"]["results"]
    except (KeyError, TypeError, ValueError) as exc:
        needed = "[api] port, [status] port, [lis.folder] orders and results"
        raise DemoError(
            f"{config / AGENT_CONFIG_FILE}: the demo needs {needed}; use the file that comes with it ({exc})"
        ) from exc
    return [service.port, *own]


def _replace_ports(config: Path, ports: Mapping[int, int]) -> None:
    """Writes the ports to use into both files, wherever they stand in them as a number of their own."""
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(str, ports)) + r")(?![\w.])")
    for file in (config / AGENT_CONFIG_FILE, config / SERVICE_CONFIG_FILE):
        text = file.read_text(encoding="utf-8")
        file.write_text(pattern.sub(lambda found: str(ports[int(found[0])]), text), encoding="utf-8")


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as exc:
        raise DemoError(f"{file}: not TOML ({exc})") from exc


def _read_service_config(file: Path) -> SandboxConfig:
    try:
        return load_config(file)
    except ConfigError as exc:
        raise DemoError(str(exc)) from exc
