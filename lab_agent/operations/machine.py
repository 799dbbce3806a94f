"""What the machine and the settings say: free room on disks, rights of files, equal ports, the age of backups."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from lab_agent.operations.monitor import Finding
from lab_agent.operations.own_thread import in_own_thread
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.systemd_units import find_failure
from lab_agent.shared.url_origin import LOOPBACK_OF_ANY
from lab_agent.store.restoration import CREATED_AT_KEY
from lab_agent.store.unit_of_work import Store

_MEGABYTE = 1_000_000
_GIGABYTE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DiskProbe:
    """Looks at the free room of the disks on which `folders` are; `reserve` bytes must be free.

    Of several folders on one disk the first is told. One that is missing is left out: whoever needs it says so.
    """

    folders: Callable[[], Sequence[Path]]
    reserve: int
    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.DISK_LOW})

    async def look(self) -> Sequence[Finding]:
        """Look at each disk once."""
        return await in_own_thread(lambda: tuple(self._look()))

    def _look(self) -> Iterator[Finding]:
        for folder in first_of_each_disk(self.folders()):
            room = os.statvfs(folder)
            free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
            if free < self.reserve:
                detail = f"{free // _MEGABYTE} MB of {size / _GIGABYTE:.1f} GB are free"
                yield Finding(condition=ConditionId.DISK_LOW, subject=str(folder), detail=detail)


def first_of_each_disk(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Give the first folder on each disk, of those that exist; of a file, its folder."""
    found: dict[int, Path] = {}
    for each in folders:
        folder = each.absolute() if each.is_dir() else each.absolute().parent
        try:
            found.setdefault(folder.stat().st_dev, folder)
        except OSError:
            continue
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class SecretFilesProbe:
    """Looks whether other users can read `files`, which hold secrets. A folder that they may not enter protects them."""

    files: Callable[[], Sequence[Path]]
    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.SETTINGS_READABLE_BY_OTHERS})

    async def look(self) -> Sequence[Finding]:
        """Look at each file."""
        return await in_own_thread(lambda: tuple(self._look()))

    def _look(self) -> Iterator[Finding]:
        for file in self.files():
            if is_readable_by_others(file):
                now = file.stat()
                yield Finding(
                    condition=ConditionId.SETTINGS_READABLE_BY_OTHERS,
                    subject=str(file.absolute()),
                    detail=f"its rights are {stat.filemode(now.st_mode)}",
                    since=datetime.fromtimestamp(now.st_ctime, UTC),  # rights or content were changed last
                )


def is_readable_by_others(file: Path) -> bool:
    """Whether any user of the machine can read a file; False for one that is missing."""
    try:
        whole = file.resolve(strict=True)
        may_enter = all(each.stat().st_mode & stat.S_IXOTH for each in whole.parents)
        return may_enter and bool(whole.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningAddress:
    """Where a part of the settings listens; `setting` is the dotted key of its port."""

    setting: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PortsProbe:
    """Compares the ports on which parts of the settings listen. They are so since the file with them was changed last."""

    addresses: Sequence[ListeningAddress]
    settings_file: Path | None = None
    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.SETTINGS_EQUAL_PORTS})

    async def look(self) -> Sequence[Finding]:
        """Compare them."""
        ports = sorted((each for each in self.addresses if each.port), key=lambda each: each.port)
        grouped = (list(group) for _, group in groupby(ports, key=lambda each: each.port))
        found = [group for group in grouped if _collides(group)]
        since = await in_own_thread(partial(written_at, self.settings_file)) if found and self.settings_file else None
        return tuple(_equal_ports(group, since) for group in found)


def _collides(group: Sequence[ListeningAddress]) -> bool:
    hosts = [each.host for each in group]
    return len(hosts) > 1 and (len(set(hosts)) < len(hosts) or not LOOPBACK_OF_ANY.keys().isdisjoint(hosts))


def _equal_ports(group: Sequence[ListeningAddress], since: datetime | None) -> Finding:
    names = ", ".join(sorted(each.setting for each in group))
    return Finding(condition=ConditionId.SETTINGS_EQUAL_PORTS, subject=names, detail=f"port {group[0].port}", since=since)


@dataclass(frozen=True, slots=True)
class BackupProbe:
    """Looks whether the unit that makes backups failed, and at the age of the newest file in their folder and those in it."""

    folder: Path | None
    max_age: timedelta
    clock: Clock
    store: Store
    unit: str | None = None
    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.BACKUP_OLD})

    async def look(self) -> Sequence[Finding]:
        """Look at the folder. Raises `StoreUnreachableError`."""
        created = await self.store.run_read_only(lambda uow: uow.key_values.get(CREATED_AT_KEY))
        due = None if created is None else datetime.fromisoformat(created) + self.max_age
        finding = await in_own_thread(lambda: self._look(due))
        return () if finding is None else (finding,)

    def _look(self, due: datetime | None) -> Finding | None:
        """Look at it; `due` is when the first backup of a new database has to be there, None for one that is not new."""
        if failure := find_failure(self.unit) if self.unit else None:
            detail = f"{failure.unit} failed: {failure.result}"
            return Finding(condition=ConditionId.BACKUP_OLD, detail=detail, since=failure.since)
        return None if self.folder is None else self._look_at_files(self.folder, due)

    def _look_at_files(self, folder: Path, due: datetime | None) -> Finding | None:
        newest = max(_modification_times(folder), default=None)
        if newest is None:
            if due is not None and self.clock.now() <= due:
                return None
            is_there = folder.is_dir()
            detail = f"there is no {'file in' if is_there else 'folder'} {folder}"
            since = max((each for each in (written_at(folder), due) if each), default=None) if is_there else due
            return Finding(condition=ConditionId.BACKUP_OLD, detail=detail, since=since)
        if self.clock.now() - newest <= self.max_age:
            return None
        detail = f"the newest is of {newest:%Y-%m-%d %H:%M} UTC"
        return Finding(condition=ConditionId.BACKUP_OLD, detail=detail, since=newest + self.max_age)


def written_at(path: Path) -> datetime | None:
    """When a file was written last, or an entry of a folder came or went; None where that is not known."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


def _modification_times(folder: Path) -> Iterator[datetime]:
    """When the files in a folder were written, and those one level beneath it; what cannot be read is left out."""
    for each in _entries(folder):
        beneath = _entries(Path(each.path)) if each.is_dir(follow_symlinks=False) else (each,)
        for entry in beneath:
            try:
                if entry.is_file() and entry.stat().st_size:
                    yield datetime.fromtimestamp(entry.stat().st_mtime, UTC)
            except OSError:
                continue


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return
