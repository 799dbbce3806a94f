"""A fresh working folder for one demo: a copy of the settings with ports that are free, folders, logs, an empty journal.

The programs run in it, so that every relative path of the settings lies in it, and nothing of an earlier run is met.

Ports for the demo's programs: the ones of the settings where they are free, other free ones where they are taken.

The ways by which the demo's laboratory system can be connected: the agent's settings for each, and the stand-in's options.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_sandbox.config import ConfigError, SandboxConfig, load_config
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.lis.simulator import FolderTransport, LisTransport, SimulatorFolders
from lab_sandbox.demo.lis.transport_hl7 import Hl7Transport
from lab_sandbox.demo.lis.transport_http import AGENT_SECRET, LIS_SECRET, HttpTransport
from lab_sandbox.demo.lis.transport_sql import SqlTransport

HOST = "127.0.0.1"


def choose_ports(wanted: Iterable[int], *, use_other_ports: bool = False) -> dict[int, int]:
    """For each wanted port the one to use, all of them different; `others` takes none of the wanted ones."""
    wanted = list(wanted)
    given = {} if use_other_ports else {port: port for port in wanted if is_port_free(port)}
    for port in wanted:
        if port not in given:
            given[port] = _find_free_port({*wanted, *given.values()})
    return given


def is_port_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _find_free_port(taken: set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


CONNECTION_KINDS = ("folder", "http", "hl7v2", "sql")
STAGING_DDL_FILE = "logs/staging-tables.log"
"""Where the statements that make the staging tables are: `lab-agent adapter sql ddl` writes them there."""
_STAGING_DATABASE = "lis/lis.db"
_HTTP_PORTS = (8485, 8486)
_HL7_PORTS = (8487, 8488)


@dataclass(frozen=True, slots=True)
class LisConnection:
    """One way: `table` is what the agent's settings say of it (nothing for the way that they have already)."""

    kind: str
    settings_toml: str = ""
    simulator_options: tuple[str, ...] = ()


FOLDER_CONNECTION = LisConnection("folder")
"""The way that the settings of the demo have already."""


def build_connection(kind: str, folder: Path, *, other_ports: bool) -> LisConnection:
    """The connection of that kind within the working folder; `DemoError` if there is none."""
    match kind:
        case "folder":
            return FOLDER_CONNECTION
        case "http":
            return _http_connection(*choose_ports(_HTTP_PORTS, use_other_ports=other_ports).values())
        case "hl7v2":
            return _hl7_connection(*choose_ports(_HL7_PORTS, use_other_ports=other_ports).values())
        case "sql":
            table = f'[lis.sql]\nurl = "sqlite:///{_STAGING_DATABASE}"\n'
            return LisConnection(kind, table, _by_options(kind, str(folder / _STAGING_DATABASE), str(folder / STAGING_DDL_FILE)))
        case _:
            raise DemoError(f"there is no way {kind} to a laboratory system; there are {', '.join(CONNECTION_KINDS)}")


def configure_connection(settings: Path, connection: LisConnection) -> None:
    """Let the agent's settings say so: this way is the default, and the folders are the stand-in's own affair."""
    if connection.kind == "folder":
        return
    text = settings.read_text(encoding="utf-8")
    text = re.sub(r'(?m)^default = "folder"$', f'default = "{connection.kind}"', text)
    text = re.sub(r"(?ms)^\[lis\.folder\]\n.*?(?=^\[|\Z)", f"{connection.settings_toml}\n", text)
    settings.write_text(text, encoding="utf-8")


def _http_connection(lis_port: int, agent_port: int) -> LisConnection:
    table = (
        "[lis.http]\n"
        f'url = "http://{HOST}:{lis_port}/"\nsecret = "{AGENT_SECRET}"\nincoming_secret = "{LIS_SECRET}"\nport = {agent_port}\n'
        'status_path = "orders/{key}"\ncheck_path = "health"\n'
    )
    return LisConnection("http", table, _by_options("http", str(lis_port), f"http://{HOST}:{agent_port}"))


def _hl7_connection(lis_port: int, agent_port: int) -> LisConnection:
    table = (
        '[lis.hl7v2]\nfolder = "lis/hl7v2"\nduplicates = "msh10"\nreconnect_wait = 0.5\n'
        f'orders = {{ role = "client", host = "{HOST}", port = {lis_port} }}\n'
        f'results = {{ role = "server", host = "{HOST}", port = {agent_port} }}\n'
    )
    return LisConnection("hl7v2", table, _by_options("hl7v2", str(lis_port), str(agent_port)))


def build_transport(arguments: Sequence[str], folders: SimulatorFolders) -> LisTransport:
    """The stand-in's end of a way, from the words of its `--by` options."""
    match list(arguments):
        case []:
            return FolderTransport()
        case ["hl7v2", port, agent] if port.isdecimal() and agent.isdecimal():
            return Hl7Transport(folders, int(port), int(agent))
        case ["http", port, agent] if port.isdecimal():
            return HttpTransport(folders, int(port), agent)
        case ["sql", database, ddl]:
            return SqlTransport(folders, Path(database), Path(ddl))
        case _:
            raise DemoError(
                "say --by http --by PORT --by AGENT, --by hl7v2 --by PORT --by AGENTPORT, or --by sql --by DATABASE --by DDL"
            )


def _by_options(*arguments: str) -> tuple[str, ...]:
    return tuple(part for word in arguments for part in ("--by", word))


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
