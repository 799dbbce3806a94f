"""Copies of a database in one file, made while others work on it, and put back: SQLite by itself, PostgreSQL by its own programs.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from itertools import takewhile
from pathlib import Path

from sqlalchemy import URL

from lab_agent.shared.atomic_file import sync_folder
from lab_agent.shared.errors import StoreError, StoreFault, StoreUnreachableError
from lab_agent.store.crypto import Cipher
from lab_agent.store.engine import open_reading_engine, parse_url, sqlite_file
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.integrity import check_content
from lab_agent.store.schema_versions import SERVED_KEY, check_restorable, reject_foreign
from lab_agent.store.vault import check_key

_PROGRAM_SECONDS = 6 * 3600


def copy_database(url: str, target: Path) -> None:
    """Copy the database into the new file `target`, as it is at one moment; on the disk when it returns. Raises `StoreError`."""
    if (file := sqlite_file(url)) is not None:
        _copy_sqlite(file, target)
    else:
        parsed = parse_url(url)
        _run("pg_dump", parsed, ["--format=custom", "--no-owner", "--no-privileges", f"--file={target}"])
        target.chmod(0o600)
    with target.open("rb") as written:
        os.fsync(written.fileno())


def verify_copy(url: str, copy: Path, cipher: Cipher) -> None:
    """Read a copy of the database of `url` whole. Raises `StoreError` if it is damaged, of a newer schema, or of another key."""
    if sqlite_file(url) is None:
        _run("pg_restore", None, ["--list", str(copy)])
        reject_foreign(_dumped_revision(copy), _dumped_value(copy, SERVED_KEY))
        return
    engine = open_reading_engine(f"sqlite:///{copy.absolute()}", connections=1)
    try:
        with translate_errors(), engine.connect() as connection:
            check_content(connection)
            check_restorable(connection)
            check_key(connection, cipher)
    finally:
        engine.dispose()


def join_log(copy: Path) -> None:
    """Let all of a SQLite copy that was written to be in its one file, on the disk. Raises `StoreError`."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE").close()
    except sqlite3.Error as exc:
        raise StoreError(f"The copy {copy} cannot be completed: {exc}.") from exc
    with copy.open("rb") as written:
        os.fsync(written.fileno())


def put_back(url: str, copy: Path, keep_as: str) -> Path | None:
    """Put a verified copy in the place of the database, in one step; `copy` is gone then if it is a file of SQLite.

    The SQLite files that were there stay beside it, `keep_as` added to their names; that of the database is given. On
    PostgreSQL, the content is replaced in one transaction. Raises `StoreError`.
    """
    file = sqlite_file(url)
    if file is None:
        options = ["--clean", "--if-exists", "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
        _run("pg_restore", parse_url(url), [*options, str(copy)])
        return None
    file, kept = file.resolve(), None  # a symbolic link stays one
    try:
        for ending in ("-wal", "-shm", ""):  # the database last: as long as it is there, nobody takes its log for lost
            former = file.with_name(file.name + ending)
            if former.exists():
                moved = former.rename(file.with_name(f"{file.name}{keep_as}{ending}"))
                kept = moved if former == file else kept
        copy.rename(file)
        sync_folder(file.parent)
    except OSError as exc:
        raise StoreError(f"The copy cannot be put in the place of {file}: {exc.strerror}.") from exc
    return kept


def _copy_sqlite(file: Path, target: Path) -> None:
    if not file.exists():
        raise StoreUnreachableError(f"There is no database at {file}.", StoreFault.DELETED)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)  # in one step: one that is made in several begins anew at each write of others
            copy.execute("PRAGMA journal_mode=DELETE").close()  # one file is all of it
    except sqlite3.Error as exc:
        raise StoreError(f"The database {file} cannot be copied to {target}: {exc}.") from exc


def _dumped_revision(copy: Path) -> str | None:
    """The schema of a dump."""
    rows = _dumped_rows(copy, "alembic_version")
    return rows[0][0] if rows else None


def _dumped_value(copy: Path, key: str) -> str | None:
    """What a dump has stored under a key, as `key_values` has it."""
    return next((row[1] for row in _dumped_rows(copy, "key_values") if row[0] == key), None)


def _dumped_rows(copy: Path, table: str) -> list[list[str]]:
    """The rows of a table in a dump, from the line after its `COPY` to the one that ends it."""
    lines = iter(_run("pg_restore", None, ["--data-only", f"--table={table}", "--file=-", str(copy)]).splitlines())
    if next((line for line in lines if line.startswith("COPY ")), None) is None:
        return []
    return [line.split("\t") for line in takewhile(lambda line: line != "\\.", lines)]


def _run(program: str, url: URL | None, arguments: list[str]) -> str:
    """Run one of PostgreSQL's programs; its password goes by the environment, where `ps` does not show it."""
    path = shutil.which(program)
    if path is None:
        raise StoreError(f"{program} is not on the PATH: install PostgreSQL's client programs (Debian: postgresql-client).")
    environment = dict(os.environ)
    if url is not None:
        if url.password is not None:
            environment["PGPASSWORD"] = str(url.password)
        plain = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
        arguments = [f"--dbname={plain}", *arguments]
    done = subprocess.run(  # noqa: S603 - a program of PostgreSQL's with arguments of ours
        [path, *arguments], env=environment, capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False
    )
    if done.returncode:
        said = " ".join(done.stderr.split())[:500]
        raise StoreError(f"{program} has failed: {said}")
    return done.stdout
