"""The ways by which the demo's laboratory system can be connected: the agent's settings for each, and the stand-in's options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab_sandbox.demo.lis.by_hl7 import Hl7Transport
from lab_sandbox.demo.lis.by_http import AGENT_SECRET, LIS_SECRET, HttpTransport
from lab_sandbox.demo.lis.by_sql import SqlTransport
from lab_sandbox.demo.lis.link import FolderTransport, LisTransport
from lab_sandbox.demo.lis.stand_in import SimulatorFolders
from lab_sandbox.demo.ports import HOST, choose_ports
from lab_sandbox.demo.trouble import DemoError

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
