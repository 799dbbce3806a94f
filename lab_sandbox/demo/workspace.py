"""A fresh working folder for one demo: a copy of the settings with free ports, the chosen LIS connection, folders and logs.

The programs run in it, so that relative paths of the settings lead into it, and nothing is left of an earlier run.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab_sandbox.config import ConfigError, SandboxConfig, load_config
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.lis.simulator import FolderTransport, LisTransport, SimulatorFolders
from lab_sandbox.demo.lis.transport_hl7 import Hl7Transport
from lab_sandbox.demo.lis.transport_http import AGENT_SECRET, LIS_SECRET, HttpTransport
from lab_sandbox.demo.lis.transport_sql import SqlTransport
from lab_sandbox.demo.scenarios import MICROBIOLOGY_ITEM
from lab_sandbox.demo.toml_edit import set_values

HOST = "127.0.0.1"
AGENT_CONFIG_FILE, SERVICE_CONFIG_FILE = "sandbox.toml", "sandbox-service.toml"
CONNECTION_KINDS = ("folder", "http", "hl7v2", "sql")
STAGING_DDL_FILE = "logs/staging-tables.log"
"""The log of `lab-agent adapter sql ddl`: the statements that create the staging tables."""
STRICT_SEARCH_AGE = 2.0
"""Seconds that a strict service's searches may be old: a minute would be true to life, and a demo of many minutes."""
STU3_PATHS = {
    "order_tasks": "fhir/Task?status=requested&code=OrderProcessingTask",
    "line_tasks": "fhir/Task?part-of=Task/{id}",
    "questionnaires": "fhir/QuestionnaireResponse?subject=ProcedureRequest/{id}",
    "read": "fhir/{Resource}/{id}",
}
"""The agent's `[exchange.paths]` for an STU3 server; the others are so by default."""
_STAGING_DATABASE = "lis/lis.db"
_HTTP_PORTS = (8485, 8486)
_HL7_PORTS = (8487, 8488, 8489, 8490)


def choose_ports(wanted: Iterable[int], *, use_other_ports: bool = False) -> dict[int, int]:
    """For each wanted port a free one, all different; `use_other_ports` avoids all the wanted ones."""
    wanted = list(wanted)
    chosen = {} if use_other_ports else {port: port for port in wanted if is_port_free(port)}
    for port in wanted:
        if port not in chosen:
            chosen[port] = _find_free_port({*wanted, *chosen.values()})
    return chosen


def is_port_free(port: int) -> bool:
    """Whether a server could listen on this port."""
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


@dataclass(frozen=True, slots=True)
class LisConnection:
    """How the LIS is connected: a table for the agent's settings (empty if they have it already), and the simulator's options.

    `microbiology_ports` are those of the second laboratory system and of the agent for it; empty where there is none.
    """

    kind: str
    settings_toml: str = ""
    simulator_options: tuple[str, ...] = ()
    microbiology_ports: tuple[int, ...] = ()


FOLDER_CONNECTION = LisConnection("folder")
"""The connection in the settings of the demo."""


def build_connection(kind: str, folder: Path, *, other_ports: bool) -> LisConnection:
    """A connection of this kind within the working folder; `DemoError` for an unknown kind."""
    match kind:
        case "folder":
            return FOLDER_CONNECTION
        case "http":
            return _http_connection(*choose_ports(_HTTP_PORTS, use_other_ports=other_ports).values())
        case "hl7v2":
            return _hl7_connections(*choose_ports(_HL7_PORTS, use_other_ports=other_ports).values())
        case "sql":
            table = f'[lis.sql]\nurl = "sqlite:///{_STAGING_DATABASE}"\n'
            return LisConnection(kind, table, _by_options(kind, str(folder / _STAGING_DATABASE), str(folder / STAGING_DDL_FILE)))
        case _:
            raise DemoError(f"Unknown LIS connection {kind}. Use --lis with one of {', '.join(CONNECTION_KINDS)}.")


def configure_connection(settings: Path, connection: LisConnection) -> None:
    """Writes the connection to the agent's settings as the default adapter, in place of the folder adapter."""
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


def _hl7_connections(*ports: int) -> LisConnection:
    """Two laboratory systems: that of microbiology gets the cultures for which a route is set."""
    tables = _hl7_table("hl7v2", *ports[:2]), _hl7_table("microbiology", *ports[2:])
    route = f'[[lis.routes]]\nitems = ["{MICROBIOLOGY_ITEM}"]\nadapter = "microbiology"\n'
    options = _by_options("hl7v2", *map(str, ports[:2]))
    return LisConnection("hl7v2", "\n".join((*tables, route)), options, ports[2:])


def _hl7_table(name: str, lis_port: int, agent_port: int) -> str:
    return (
        f'[lis.{name}]\nadapter = "hl7v2"\nfolder = "lis/{name}"\nduplicates = "msh10"\nreconnect_wait = 0.5\n'
        f'orders = {{ role = "client", host = "{HOST}", port = {lis_port} }}\n'
        f'results = {{ role = "server", host = "{HOST}", port = {agent_port} }}\n'
    )


def build_transport(arguments: Sequence[str], folders: SimulatorFolders) -> LisTransport:
    """The simulator's side of a connection, from the values of its `--by` options."""
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
                "Use --by http --by PORT --by AGENT, --by hl7v2 --by PORT --by AGENTPORT, or --by sql --by DATABASE --by DDL."
            )


def _by_options(*arguments: str) -> tuple[str, ...]:
    return tuple(part for argument in arguments for part in ("--by", argument))


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where one demo runs, with the settings of the agent (as TOML tables) and of the exchange service."""

    folder: Path
    agent_config: dict[str, Any]
    service_config: SandboxConfig
    connection: LisConnection = FOLDER_CONNECTION

    @property
    def agent_settings(self) -> Path:
        """The settings file of the agent and of the laboratory's API."""
        return self.folder / "config" / AGENT_CONFIG_FILE

    @property
    def service_settings(self) -> Path:
        """The settings file of the exchange service."""
        return self.folder / "config" / SERVICE_CONFIG_FILE

    @property
    def orders(self) -> Path:
        """Where orders for the LIS are written, by the agent or by the simulator's transport."""
        return self._lis_exchange_folder("orders")

    @property
    def results(self) -> Path:
        """Where the LIS writes results."""
        return self._lis_exchange_folder("results")

    def _lis_exchange_folder(self, name: str) -> Path:
        return (
            self.lis / name if self.connection.kind != "folder" else self.folder / str(self.agent_config["lis"]["folder"][name])
        )

    @property
    def lis(self) -> Path:
        """The LIS simulator's own folder."""
        return self.folder / "lis"

    @property
    def microbiology(self) -> Path:
        """The own folder of the second laboratory system, where there is one."""
        return self.folder / "microbiology"

    @property
    def logs(self) -> Path:
        """One log for each program."""
        return self.folder / "logs"

    @property
    def service_url(self) -> str:
        """Address of the exchange service, ending in a slash."""
        return self.service_config.resolve_addresses().base_url

    @property
    def notification_port(self) -> int | None:
        """The port of the clinic's address, where it gets notifications."""
        return next(_notification_ports(self.service_config), None)

    @property
    def api_url(self) -> str:
        """Address of the laboratory's API."""
        return f"http://{HOST}:{self.agent_config['api']['port']}"

    @property
    def status_url(self) -> str:
        """Address of the status page."""
        return f"http://{HOST}:{self.agent_config['status']['port']}"


def create_workspace(
    config: Path, *, other_ports: bool = False, lis: str = "folder", strict: bool = False, faults: Path | None = None
) -> Workspace:
    """Creates a working folder from the settings folder `config`; `DemoError` if that has not the demo's settings.

    `other_ports` chooses other free ports, so that several demos can run side by side; `lis` is how the LIS is connected;
    `strict` and `faults` are options of the exchange service.
    """
    for name in (AGENT_CONFIG_FILE, SERVICE_CONFIG_FILE):
        if not (config / name).is_file():
            raise DemoError(f"{config / name} does not exist. Run the demo in the root of the checkout, or set --config-dir.")
    ports = choose_ports(_configured_ports(config), use_other_ports=other_ports)
    folder = Path(tempfile.mkdtemp(prefix="lab-demo-"))
    shutil.copytree(config, folder / "config")
    _replace_ports(folder / "config", ports)
    if strict:
        _make_strict(folder / "config")
    if faults is not None:
        set_values(folder / "config" / SERVICE_CONFIG_FILE, "", {"faults": str(faults.resolve())})
    connection = build_connection(lis, folder, other_ports=other_ports)
    configure_connection(folder / "config" / AGENT_CONFIG_FILE, connection)
    workspace = Workspace(
        folder,
        _read_toml(folder / "config" / AGENT_CONFIG_FILE),
        _read_service_config(folder / "config" / SERVICE_CONFIG_FILE),
        connection,
    )
    for path in (workspace.orders, workspace.results, workspace.lis, workspace.logs):
        path.mkdir(parents=True, exist_ok=True)
    return workspace


def _make_strict(config: Path) -> None:
    """A service that does what an STU3 server does, and an agent that writes types in their case."""
    set_values(config / SERVICE_CONFIG_FILE, "", {"strict": True})
    set_values(config / SERVICE_CONFIG_FILE, "rules", {"search_age_seconds": STRICT_SEARCH_AGE})
    set_values(config / AGENT_CONFIG_FILE, "exchange.paths", STU3_PATHS)


def _configured_ports(config: Path) -> list[int]:
    """The ports of the service, the laboratory's API, the status page and the clinic; `DemoError` if the settings lack one."""
    agent, service = _read_toml(config / AGENT_CONFIG_FILE), _read_service_config(config / SERVICE_CONFIG_FILE)
    try:
        own = [int(agent[table]["port"]) for table in ("api", "status")]
        _ = agent["lis"]["folder"]["orders"], agent["lis"]["folder"]["results"]
    except (KeyError, TypeError, ValueError) as exc:
        needed = "[api] port, [status] port, [lis.folder] orders and results"
        raise DemoError(
            f"{config / AGENT_CONFIG_FILE}: the demo needs {needed} ({exc}). Use the file that comes with it."
        ) from exc
    return list(dict.fromkeys([service.port, *own, *_notification_ports(service)]))


def _notification_ports(service: SandboxConfig) -> Iterator[int]:
    addresses = (urlsplit(party.address) for party in service.counterparties if party.kind == "partner" and party.address)
    yield from (address.port for address in addresses if address.port)


def _replace_ports(config: Path, ports: Mapping[int, int]) -> None:
    """Replaces the ports in both files, wherever they occur as a number of their own."""
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(str, ports)) + r")(?![\w.])")
    for file in (config / AGENT_CONFIG_FILE, config / SERVICE_CONFIG_FILE):
        text = file.read_text(encoding="utf-8")
        file.write_text(pattern.sub(lambda found: str(ports[int(found[0])]), text), encoding="utf-8")


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as exc:
        raise DemoError(f"{file} is not valid TOML: {exc}") from exc


def _read_service_config(file: Path) -> SandboxConfig:
    try:
        return load_config(file)
    except ConfigError as exc:
        raise DemoError(str(exc)) from exc
