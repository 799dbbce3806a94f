"""What lies in the results folder and is not read, and what was read too early: both are told, instead of left in silence.

All methods block; one object is used by one thread at a time.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from lab_agent.lis.folder.files import FileIdentity, NotRegularFileError, identity_of, is_temporary, restore_moved_file

MAX_WATCHED_FILES = 500
"""At most this many of the files that were taken last are watched for late writing."""


class Finding(Enum):
    """Why something in the results folder needs a person; the text names no file, since its name may name a patient."""

    SYMBOLIC_LINK = "a symbolic link in the folder for results is not read: write the file itself"
    FOLDER = "a folder that is named like a result is not read: write the file itself"
    NOT_A_FILE = "a pipe, socket or device in the folder for results is not read: write a file"
    RESULTS_IN_SUBFOLDER = "results in a subfolder of the folder for results are not read: write them into the folder itself"
    NO_MARKER = "a result file has no marker that it is complete: write the marker, or correct complete_marker"
    CHANGED_AFTER_READING = (
        "a file was still being written after it was read; it was put back and is read again:"
        " write under a temporary name and rename, or set complete_marker"
    )


@dataclass(slots=True)
class FolderWatch:
    """Looks for entries that are not read. Each is told once, and again after a restart.

    `is_result` judges a name; `ignored` are our own folders.
    """

    results: Path
    ignored: frozenset[Path]
    is_result: Callable[[str], bool]
    _told: set[tuple[str, Finding]] = field(default_factory=set)
    _searched: dict[str, int] = field(default_factory=dict)

    def find(self, others: Iterable[tuple[str, Finding]] = ()) -> list[tuple[str, Finding]]:
        """The entries that were not told yet, by name, each with what is wrong; `others` were found elsewhere."""
        found = {*self._entries(), *others}
        self._told &= found  # what was removed and comes again is told again
        return sorted(found - self._told, key=lambda one: (one[0], one[1].name))

    def mark_told(self, name: str, finding: Finding) -> None:
        """Remember that an entry was told."""
        self._told.add((name, finding))

    def _entries(self) -> Iterator[tuple[str, Finding]]:
        with os.scandir(self.results) as entries:
            unread = [one.name for one in entries if not one.is_file(follow_symlinks=False) and not is_temporary(one.name)]
        for name in unread:
            with suppress(FileNotFoundError):
                path = self.results / name
                if (finding := self._judge(path, path.lstat().st_mode)) is not None:
                    yield name, finding

    def _judge(self, path: Path, mode: int) -> Finding | None:
        if stat.S_ISDIR(mode) and path in self.ignored:
            return None
        if stat.S_ISDIR(mode) and not self.is_result(path.name):
            return Finding.RESULTS_IN_SUBFOLDER if self._has_results(path) else None
        if not self.is_result(path.name):
            return None
        if stat.S_ISDIR(mode):
            return Finding.FOLDER
        return Finding.SYMBOLIC_LINK if stat.S_ISLNK(mode) else Finding.NOT_A_FILE

    def _has_results(self, folder: Path) -> bool:
        """Whether a subfolder has results; one that has not changed since it was searched in vain is not searched again."""
        try:
            changed = folder.stat().st_mtime_ns
            if self._searched.get(folder.name) == changed:
                return False
            found = any(self.is_result(path.name) and path.is_file() for path in folder.iterdir())
        except OSError:
            return False
        if not found:
            self._searched[folder.name] = changed
        return found


@dataclass(slots=True)
class TakenFiles:
    """The files that were taken in the last `seconds`: a writer that only paused goes on writing into the moved file."""

    seconds: float
    _files: deque[tuple[float, str, Path, FileIdentity]] = field(default_factory=lambda: deque(maxlen=MAX_WATCHED_FILES))

    def add(self, name: str, moved: Path, identity: FileIdentity, now: float) -> None:
        """Watch a file that was moved to `moved`; `name` is its name in the results folder."""
        if self.seconds:
            self._files.append((now, name, moved, identity))

    def put_back_changed(self, folder: Path, now: float) -> list[str]:
        """Put the files that have changed since back into `folder`; returns their names."""
        changed = []
        for entry in list(self._files):
            taken, name, moved, identity = entry
            state = _state(moved, identity)
            if state is _State.CHANGED:
                restore_moved_file(moved, folder, name)
                changed.append(name)
            if state is not _State.SAME or now - taken > self.seconds:
                self._files.remove(entry)
        return changed


class _State(Enum):
    SAME = "same"
    CHANGED = "changed"
    GONE = "gone"


def _state(path: Path, identity: FileIdentity) -> _State:
    """Whether a moved file was written to since; another file of that name is none of ours."""
    try:
        now = identity_of(path)
    except (FileNotFoundError, NotRegularFileError):
        return _State.GONE
    if (now.device, now.inode) != (identity.device, identity.inode):
        return _State.GONE
    return _State.SAME if now == identity else _State.CHANGED
