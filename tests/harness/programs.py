"""`lab-api` as a process: its settings, its start, and the socket on which systemd would listen."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab_agent.store.schema import upgrade
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database
from tests.harness.forked_programs import ForkedProgram

TOKEN = {"Authorization": "Bearer process-token"}

_FIRST_PORT, _PORTS, _PORTS_OF_WORKER = 20_000, 12_000, 1_500
_offsets = itertools.count(os.getpid())  # where other test sessions on this machine are likely not to be


def write_settings_file(folder: Path, port: int, *, url: str | None = None, api: str = "") -> Path:
    """Settings with the catalogue of that folder, and a store ready for them; `api` are more lines of the group."""
    path = folder.parent / f"settings-{port}.toml"
    store = url or f"sqlite:///{folder.parent}/agent.db"
    if url is None and not (folder.parent / "agent.db").exists():
        create_database(folder.parent / "agent.db")
    else:
        upgrade(store)
    path.write_text(
        f"""
[exchange]
base_url = "http://127.0.0.1:1/"
lab_codes_url = "http://codes.lab.example"
second_labels_system = "http://codes.lab.example/second-labels"
laboratory = "8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"
[exchange.oauth]
grant = "password"
auth_url = "http://127.0.0.1:1"
client_id = "lab-agent"
client_secret = "secret"
username = "laboratory"
password = "password"
[exchange.contracts.C-100]
[store]
url = "{store}"
encryption_keys = ["mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="]
[lis]
default = "folder"
[lis.folder]
orders = "{folder.parent}/orders"
results = "{folder.parent}/results"
[api]
port = {port}
catalogue = "{folder}"
drain = 2
{api}
[[api.tokens]]
name = "exchange"
sha256 = "{hashlib.sha256(b"process-token").hexdigest()}"
"""
    )
    return path


def free_port() -> int:
    """A port for a program that is still to start.

    It is below those that the system gives to whoever asks for any, so that no other socket gets it until then, and other than
    those that this test session gave before; each process of pytest-xdist has its own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for offset in _offsets:
        port = _FIRST_PORT + (worker * _PORTS_OF_WORKER + offset % _PORTS_OF_WORKER) % _PORTS
        with socket.socket() as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: an ended connection does not hold it
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextmanager
def running_api(config: Path, environ: dict[str, str]) -> Iterator[ForkedProgram]:
    env = {**os.environ, **environ}
    process = forked_programs.start("lab_api.cli", "run", "--config", str(config), stderr=subprocess.PIPE, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.close()


class NotifySocket:
    """The socket on which systemd listens."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.settimeout(DEADLINE)
        self.environ = {"NOTIFY_SOCKET": str(path)}

    def wait_for(self, state: str) -> None:
        while state not in self.sock.recv(4096).decode().split("\n"):
            pass
