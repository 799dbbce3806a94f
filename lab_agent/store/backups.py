"""Backups of the database: made while it is worked on, verified, kept by number and age; and put back.

A backup is written beside its final name and gets that once it was read whole, so that what is there is good. Everything here
blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from lab_agent.settings.groups import BackupSettings, StoreSettings
from lab_agent.shared.atomic_file import sync_folder
from lab_agent.shared.errors import InputError, StoreError
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.crypto import Cipher
from lab_agent.store.database_copy import copy_database, join_log, put_back, verify_copy
from lab_agent.store.engine import sqlite_file
from lab_agent.store.living_workers import reject_living_workers
from lab_agent.store.opening import build_cipher
from lab_agent.store.progress import CountedTarget, Tell, tell_nobody
from lab_agent.store.schema import upgrade
from lab_agent.store.sealed_file import is_sealed, seal, unseal

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"lab-agent-(\d{8}T\d{6}Z)\.(?:db|pgdump)(\.sealed)?")
_TEMPORARY = ".backup.tmp"
_STALE_AFTER = timedelta(seconds=30)
_LEFT_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """One backup: its file, when it was made, its size in bytes, and whether it is encrypted whole."""

    path: Path
    made_at: datetime
    size: int
    is_encrypted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBackup:
    """What a restore did: when the backup was made, if its name says so, and where the SQLite file is that was replaced."""

    made_at: datetime | None
    replaced: Path | None


def list_backups(folder: Path) -> tuple[Backup, ...]:
    """The backups in a folder, newest first. Raises `StoreError` if it cannot be read."""
    try:
        return tuple(sorted(_find_backups(folder), key=lambda each: each.made_at, reverse=True))
    except OSError as exc:
        raise StoreError(f"The folder of backups {folder} cannot be read: {exc.strerror}.") from exc


def make_backup(store: StoreSettings, folder: Path, now: datetime, *, encrypt: bool, tell: Tell = tell_nobody) -> Backup:
    """Copy the database into `folder`, and read the copy whole. Raises `StoreError`."""
    ending = "db" if sqlite_file(store.url) is not None else "pgdump"
    path = folder / f"lab-agent-{now.astimezone(UTC):{_TIME_FORMAT}}.{ending}{'.sealed' if encrypt else ''}"
    cipher = build_cipher(store)
    with _os_errors(f"The backup cannot be written into {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _temporary_file(folder) as copy:
            copy_database(store.url, copy)
            size, steps = copy.stat().st_size, 4 if encrypt else 2  # each of the steps goes through all bytes
            tell(size, steps * size)
            verify_copy(store.url, copy, cipher)
            tell(2 * size, steps * size)
            if encrypt:
                with _temporary_file(folder) as sealed:
                    _seal_verified(copy, sealed, cipher, tell)
                    sealed.rename(path)
            else:
                copy.rename(path)
        sync_folder(folder)
        return Backup(path=path, made_at=now, size=path.stat().st_size, is_encrypted=encrypt)


def prune_backups(settings: BackupSettings, folder: Path, now: datetime) -> tuple[Backup, ...]:
    """Delete the backups that are beyond the number or the age to be kept, never the newest; give them. Raises `StoreError`."""
    oldest = now - timedelta(days=settings.keep_days)
    older = list(enumerate(list_backups(folder)))[1:]
    beyond = [each for number, each in older if number >= settings.keep or each.made_at < oldest]
    with _os_errors(f"Old backups in {folder} cannot be deleted"):
        for each in beyond:
            each.path.unlink(missing_ok=True)
        for left in folder.glob(f".*{_TEMPORARY}"):  # of a backup that was cut off
            if datetime.fromtimestamp(left.stat().st_mtime, UTC) < now - _LEFT_AFTER:
                left.unlink(missing_ok=True)
    return tuple(beyond)


def restore_backup(
    store: StoreSettings,
    backup: Path,
    now: datetime,
    *,
    stale_after: timedelta = _STALE_AFTER,
    prepare: Callable[[str], object] = upgrade,
    tell: Tell = tell_nobody,
) -> RestoredBackup:
    """Put a backup in the place of the database, after it was read whole; the database that was there is kept beside it.

    `prepare` brings the database at a URL to what programs are to find: SQLite's copy before it is put there, PostgreSQL's after
    that. `stale_after` is how old the heartbeat of a worker must be.

    Raises `InputError` for a file that is no backup, `StoreUnreachableError` while an agent works on the database,
    `SchemaMismatchError` for a backup of a newer program, `CryptoError` for one of another key, and `StoreError`.
    """
    if not backup.is_file():
        raise InputError(f"There is no backup at {backup}.")
    cipher, lock, file = build_cipher(store), AgentLock(store.url), sqlite_file(store.url)
    folder = backup.parent if file is None else file.resolve().parent
    with _os_errors(f"The folder {folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    lock.acquire(now, needs_database=False)
    try:
        if file is None:
            reject_living_workers(store.url, now, stale_after)
        with _os_errors(f"The backup cannot be read, or not be copied into {folder}"), _temporary_file(folder) as copy:
            with copy.open("wb") as opened:
                _copy_plain(backup, opened, cipher, tell)
            copy.chmod(0o600)
            size = copy.stat().st_size
            tell(size, 3 * size)
            verify_copy(store.url, copy, cipher)
            tell(2 * size, 3 * size)
            if file is not None:
                prepare(f"sqlite:///{copy}")
                join_log(copy)
            kept = put_back(store.url, copy, f".replaced-{now.astimezone(UTC):{_TIME_FORMAT}}")
        if file is None:
            prepare(store.url)
    finally:
        lock.release()
    return RestoredBackup(made_at=backup_time(backup.name), replaced=kept)


def _find_backups(folder: Path) -> Iterator[Backup]:
    for path in folder.iterdir():
        if (made_at := backup_time(path.name)) is not None and path.is_file():
            is_encrypted = path.suffix == ".sealed"
            yield Backup(path=path, made_at=made_at, size=path.stat().st_size, is_encrypted=is_encrypted)


def backup_time(name: str) -> datetime | None:
    """When a backup of this name was made; None where its name does not say so."""
    found = _NAME.fullmatch(name)
    try:
        return None if found is None else datetime.strptime(found[1], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _seal_verified(copy: Path, sealed: Path, cipher: Cipher, tell: Tell) -> None:
    """Write `copy` encrypted, and read it back whole: the last two of four steps."""
    size = copy.stat().st_size
    with sealed.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        seal(copy, CountedTarget(file, tell, before=2 * size, size=size, total=4 * size), cipher)
        file.flush()
        os.fsync(file.fileno())
    digest = _Digest()
    unseal(sealed, CountedTarget(digest, tell, before=3 * size, size=size, total=4 * size), cipher)
    with copy.open("rb") as file:
        if hashlib.file_digest(file, "sha256").digest() != digest.of.digest():
            raise StoreError(f"What was written into {sealed.parent} is not what was to be written; look at that disk.")


def _copy_plain(backup: Path, target: BinaryIO, cipher: Cipher, tell: Tell) -> None:
    """Write the content of a backup: the first of three steps."""
    size = backup.stat().st_size
    counted = CountedTarget(target, tell, before=0, size=size, total=3 * size)
    if is_sealed(backup):
        unseal(backup, counted, cipher)
    else:
        with backup.open("rb") as source:
            shutil.copyfileobj(source, counted, 1 << 20)
    target.flush()
    os.fsync(target.fileno())


class _Digest:
    """A target that keeps only the digest of what is written."""

    def __init__(self) -> None:
        self.of = hashlib.sha256()

    def write(self, content: bytes, /) -> None:
        self.of.update(content)


@contextmanager
def _temporary_file(folder: Path) -> Iterator[Path]:
    """Give a name for a file that is removed at the end, with what SQLite puts beside it, unless it was renamed."""
    path = folder / f".{secrets.token_hex(8)}{_TEMPORARY}"
    try:
        yield path
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def _os_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StoreError(f"{what}: {exc.strerror}.") from exc
