"""Orders as files, none ever written twice: written under a hidden name, committed by the agent as *prepared*, then renamed.

For each order there are at most three names in the folder:

    .<key>.part       written by `prepare`; the LIS does not see it
    .prepared/<key>   an empty marker: `prepare` ran in this folder; it stays
    <key>.json        what `submit` renames the part to; the LIS may pick it up at any moment

If the part exists, the order was not submitted. If the part is gone and the marker exists, it was, whether or not the LIS has
picked up the file. If both are gone, this is not the folder in which the order was prepared (an unmounted share, a replaced
disk), and nothing may be concluded from the missing part.
"""

from __future__ import annotations

import codecs
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_agent.lis.folder.files import is_safe_key
from lab_agent.shared import exact_json
from lab_agent.shared.atomic_file import sync_folder, write_atomically
from lab_agent.shared.errors import DataInvalidError, LisRejected, LisUnavailable

_MARKER_FOLDER = ".prepared"
_MARKER_LIFETIME = 400 * 86400
_TEMPORARY_FILE_LIFETIME = 3600


@dataclass(frozen=True, slots=True)
class OrderFolder:
    """The folder that orders are written to. All methods block."""

    folder: Path
    cancel_name: str
    mode: int
    encoding: str = "utf-8"

    def open(self) -> None:
        """Create the folder of the markers, and remove leftovers."""
        if not self.folder.is_dir():
            raise LisUnavailable("the folder for orders does not exist: create or mount it")
        (self.folder / _MARKER_FOLDER).mkdir(exist_ok=True)
        self._remove_stale(time.time())

    def prepare(self, key: str, data: bytes) -> None:
        """Write the part, unless the order was submitted before. In a folder that was not opened, nothing is written."""
        part, marker = self._part_path(key), self._marker_path(key)
        if self.was_received(key):
            return
        write_atomically(part, transcode_json(data, self.encoding), self.mode)
        if not marker.exists():
            marker.touch(exist_ok=True)
            sync_folder(marker.parent)

    def submit(self, key: str, name: str) -> None:
        """Rename the part to `name`; a success too if it was renamed before."""
        part, final = self._part_path(key), self.folder / name
        match self.was_received(key):
            case None:
                raise LisUnavailable(f"order {key} was not prepared in this orders folder: is the share mounted?")
            case False if final.exists():
                part.unlink()  # a late duplicate of the file that exists already
            case False:
                part.rename(final)
        sync_folder(self.folder)

    def was_received(self, key: str) -> bool | None:
        """Whether the order was submitted; None if this folder knows nothing of it.

        Both names are looked for in one folder that is held open: a share that is mounted or unmounted in between would show the
        marker without the part. Raises `LisUnavailable` where this is not the folder of the start, `OSError` where there is none.
        """
        part, marker = (path.relative_to(self.folder) for path in (self._part_path(key), self._marker_path(key)))
        with self._held_open() as folder:
            if _exists(part, folder):
                return False
            return True if _exists(marker, folder) else None

    def cancel(self, key: str, lines: Sequence[str], reason: str) -> None:
        """Write the cancel file; lines in one that the LIS has not picked up yet are kept."""
        final = self.folder / self.cancel_name.replace("{key}", _validate_key(key))
        with self._held_open():
            reasons = dict.fromkeys(lines, reason) | _read_cancelled_lines(final, self.encoding)
            entries = [{"line": line, "reason": why} for line, why in reasons.items()]
            body: dict[str, Any] = {"kind": "cancel", "order": key, "lines": entries}
            write_atomically(final, transcode_json(exact_json.dumps(body), self.encoding), self.mode)

    @contextmanager
    def _held_open(self) -> Iterator[int]:
        """Its descriptor. Raises `LisUnavailable` where it is not the folder of the start: nobody may look at what is there."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _exists(Path(_MARKER_FOLDER), descriptor):
                raise LisUnavailable(
                    f"the folder for orders lacks {_MARKER_FOLDER}, so it is not the one of the start: "
                    "mount that again, or restart the agent if this one replaces it"
                )
            yield descriptor
        finally:
            os.close(descriptor)

    def _remove_stale(self, now: float) -> None:
        for leftover in self.folder.glob(".*.tmp"):
            _unlink_if_older(leftover, now - _TEMPORARY_FILE_LIFETIME)
        for marker in (self.folder / _MARKER_FOLDER).iterdir():
            if not self.folder.joinpath(f".{marker.name}.part").exists():
                _unlink_if_older(marker, now - _MARKER_LIFETIME)

    def _part_path(self, key: str) -> Path:
        return self.folder / f".{_validate_key(key)}.part"

    def _marker_path(self, key: str) -> Path:
        return self.folder / _MARKER_FOLDER / _validate_key(key)


def _exists(path: Path, folder: int) -> bool:
    try:
        os.stat(path, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def transcode_json(data: bytes, encoding: str) -> bytes:
    """Write JSON in another encoding; characters it lacks become JSON escapes."""
    if codecs.lookup(encoding).name == "utf-8":
        return data
    text = data.decode("utf-8")
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return b"".join(_encode_character(char, encoding) for char in text)


def _encode_character(char: str, encoding: str) -> bytes:
    try:
        return char.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(char)[1:-1].encode(encoding)


def _validate_key(key: str) -> str:
    if not is_safe_key(key):
        raise LisRejected("the order's key cannot be used as a file name")
    return key


def _read_cancelled_lines(cancel_file: Path, encoding: str) -> dict[str, str]:
    """The lines in an existing cancel file; none if there is no such file."""
    try:
        tree = exact_json.loads(cancel_file.read_bytes().decode(encoding))
        return {str(entry["line"]): str(entry["reason"]) for entry in tree["lines"]}
    except (FileNotFoundError, DataInvalidError, KeyError, TypeError, UnicodeDecodeError):
        return {}


def _unlink_if_older(path: Path, limit: float) -> None:
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < limit:
            path.unlink()
