"""A MariaDB server of a test's own, on a temporary folder and a socket file: where Debian's package is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.clock import DEADLINE


class MariaDbMissing(Exception):
    """There is no MariaDB here, or it does not start; the text says which."""


@contextmanager
def mariadb_server(*options: str) -> Iterator[str]:
    """Address of a server (user root, without a password), for as long as the block lasts. Raises `MariaDbMissing`."""
    programs = [shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") for name in ("mariadb-install-db", "mariadbd")]
    if not all(programs):
        raise MariaDbMissing("MariaDB is not installed: apt-get install mariadb-server")
    install, program = map(str, programs)
    home = Path(tempfile.mkdtemp(prefix="lab-maria-"))  # short: the path of a socket file has up to 107 bytes
    user = "--user=root" if os.geteuid() == 0 else f"--user={os.environ.get('USER', 'nobody')}"
    try:
        _install(install, home, user)
        with _running(program, home, user, options) as socket:
            yield f"mysql+pymysql://root@/{{database}}?unix_socket={socket}"
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _install(program: str, home: Path, user: str) -> None:
    arguments = ("--no-defaults", f"--datadir={home / 'data'}", "--skip-test-db", "--skip-name-resolve", user)
    login = "--auth-root-authentication-method=normal"
    try:
        subprocess.run([program, *arguments, login], check=True, capture_output=True, timeout=DEADLINE)
    except (subprocess.SubprocessError, OSError) as exc:
        raise MariaDbMissing(f"the data folder of MariaDB cannot be made here: {type(exc).__name__}") from exc


@contextmanager
def _running(program: str, home: Path, user: str, options: tuple[str, ...]) -> Iterator[Path]:
    socket = home / "socket"
    fast = ("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-fast-shutdown=2")
    where = (f"--datadir={home / 'data'}", f"--socket={socket}", f"--pid-file={home / 'pid'}", "--skip-networking", user)
    with (home / "log").open("wb") as log:
        server = subprocess.Popen([program, "--no-defaults", *where, *fast, *options], stdout=log, stderr=log)
    try:
        end = time.monotonic() + DEADLINE
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise MariaDbMissing("MariaDB does not start here")
            time.sleep(0.02)
        yield socket
    finally:
        server.terminate()
        try:
            server.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
