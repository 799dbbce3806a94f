"""The ways by which the demo's laboratory system can be connected: the agent's settings for each, and the stand-in's options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab_sandbox.demo.lis.by_hl7 import Hl7Link
from lab_sandbox.demo.lis.by_http import AGENT_SECRET, LIS_SECRET, HttpLink
from lab_sandbox.demo.lis.by_sql import SqlLink
from lab_sandbox.demo.lis.link import Link, NoLink
from lab_sandbox.demo.lis.stand_in import Folders
from lab_sandbox.demo.ports import HOST, settled
from lab_sandbox.demo.trouble import DemoError

KINDS = ("folder", "http", "hl7v2", "sql")
DDL = "logs/staging-tables.log"
"""Where the statements that make the staging tables are: `lab-agent adapter sql ddl` writes them there."""
_DATABASE = "lis/lis.db"
_PORTS = (8485, 8486)
_HL7_PORTS = (8487, 8488)


@dataclass(frozen=True, slots=True)
class Connection:
    """One way: `table` is what the agent's settings say of it (nothing for the way that they have already)."""

    kind: str
    table: str = ""
    options: tuple[str, ...] = ()


FOLDER = Connection("folder")
"""The way that the settings of the demo have already."""


def connection(kind: str, folder: Path, *, other_ports: bool) -> Connection:
    """The connection of that kind within the working folder; `DemoError` if there is none."""
    match kind:
        case "folder":
            return FOLDER
        case "http":
            return _by_http(*settled(_PORTS, others=other_ports).values())
        case "hl7v2":
            return _by_hl7(*settled(_HL7_PORTS, others=other_ports).values())
        case "sql":
            table = f'[lis.sql]\nurl = "sqlite:///{_DATABASE}"\n'
            return Connection(kind, table, _options(kind, str(folder / _DATABASE), str(folder / DDL)))
        case _:
            raise DemoError(f"there is no way {kind} to a laboratory system; there are {', '.join(KINDS)}")


def connect(settings: Path, way: Connection) -> None:
    """Let the agent's settings say so: this way is the default, and the folders are the stand-in's own affair."""
    if way.kind == "folder":
        return
    text = settings.read_text(encoding="utf-8")
    text = re.sub(r'(?m)^default = "folder"$', f'default = "{way.kind}"', text)
    text = re.sub(r"(?ms)^\[lis\.folder\]\n.*?(?=^\[|\Z)", f"{way.table}\n", text)
    settings.write_text(text, encoding="utf-8")


def _by_http(lis: int, agent: int) -> Connection:
    table = (
        "[lis.http]\n"
        f'url = "http://{HOST}:{lis}/"\nsecret = "{AGENT_SECRET}"\nincoming_secret = "{LIS_SECRET}"\nport = {agent}\n'
        'status_path = "orders/{key}"\ncheck_path = "health"\n'
    )
    return Connection("http", table, _options("http", str(lis), f"http://{HOST}:{agent}"))


def _by_hl7(lis: int, agent: int) -> Connection:
    table = (
        '[lis.hl7v2]\nfolder = "lis/hl7v2"\nduplicates = "msh10"\nreconnect_wait = 0.5\n'
        f'orders = {{ role = "client", host = "{HOST}", port = {lis} }}\n'
        f'results = {{ role = "server", host = "{HOST}", port = {agent} }}\n'
    )
    return Connection("hl7v2", table, _options("hl7v2", str(lis), str(agent)))


def link(words: Sequence[str], folders: Folders) -> Link:
    """The stand-in's end of a way, from the words of its `--by` options."""
    match list(words):
        case []:
            return NoLink()
        case ["hl7v2", port, agent] if port.isdecimal() and agent.isdecimal():
            return Hl7Link(folders, int(port), int(agent))
        case ["http", port, agent] if port.isdecimal():
            return HttpLink(folders, int(port), agent)
        case ["sql", database, ddl]:
            return SqlLink(folders, Path(database), Path(ddl))
        case _:
            raise DemoError(
                "say --by http --by PORT --by AGENT, --by hl7v2 --by PORT --by AGENTPORT, or --by sql --by DATABASE --by DDL"
            )


def _options(*words: str) -> tuple[str, ...]:
    return tuple(part for word in words for part in ("--by", word))
