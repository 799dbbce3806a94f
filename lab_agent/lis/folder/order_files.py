"""Orders as files, none ever written twice: written under a hidden name, committed by the agent as *prepared*, then renamed.

For each order there are at most three names in the folder:

    .<key>.part       written by `prepare`; the LIS does not see it
    .handed/<key>     an empty note that `prepare` was done in this folder; it stays
    <key>.json        what `submit` makes of the part by renaming it; the LIS may take it at any moment

The part is there: it was not handed over. The part is gone and the note is there: it was, whether or not the LIS has taken
the file. Both are gone: this is not the folder in which it was prepared (a share that is not mounted, a disk that was
replaced), and nothing may be concluded from a missing part.
"""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_agent import exact_json
from lab_agent.errors import DataInvalidError, LisRefusal, LisUnavailable
from lab_agent.lis.folder.files import is_safe_key, sync_folder, write_atomically

_MARKER_FOLDER = ".handed"
_MARKER_LIFETIME = 400 * 86400
_TEMPORARY_FILE_LIFETIME = 3600


@dataclass(frozen=True, slots=True)
class OrderFolder:
    """The folder that orders are put into. All methods block."""

    folder: Path
    cancel_name: str
    mode: int
    encoding: str = "utf-8"

    def open(self) -> None:
        """Make the folder of the notes, and clear away what is of no use any more."""
        if not self.folder.is_dir():
            raise LisUnavailable("the folder for orders is not there: create it, or mount it")
        (self.folder / _MARKER_FOLDER).mkdir(exist_ok=True)
        self._remove_stale(time.time())

    def prepare(self, key: str, data: bytes) -> None:
        """Write the part; nothing is done if the order was handed over before."""
        part, note = self._part_path(key), self._marker_path(key)
        if note.exists() and not part.exists():
            return
        write_atomically(part, transcode_json(data, self.encoding), self.mode)
        if not note.exists():
            note.touch(exist_ok=True)
            sync_folder(note.parent)

    def submit(self, key: str, name: str) -> None:
        """Rename the part to `name`; if it was renamed before, that is a success."""
        part, final = self._part_path(key), self.folder / name
        try:
            if part.exists() and final.exists():
                part.unlink()  # a late double of what is there already
            else:
                part.rename(final)
        except FileNotFoundError:
            if not self._marker_path(key).exists():
                raise LisUnavailable(f"order {key} was not prepared in this folder for orders: is the share mounted?") from None
        sync_folder(self.folder)

    def was_received(self, key: str) -> bool | None:
        """Say whether the order was handed over; None where this folder knows nothing of it."""
        if self._part_path(key).exists():
            return False
        return True if self._marker_path(key).exists() else None

    def cancel(self, key: str, lines: Sequence[str], reason: str) -> None:
        """Write the cancel file; what one that was not taken yet says is kept in it."""
        final = self.folder / self.cancel_name.replace("{key}", _validate_key(key))
        told = dict.fromkeys(lines, reason) | _read_cancelled_lines(final, self.encoding)
        entries = [{"line": line, "reason": why} for line, why in told.items()]
        body: dict[str, Any] = {"kind": "cancel", "order": key, "lines": entries}
        write_atomically(final, transcode_json(exact_json.dumps(body), self.encoding), self.mode)

    def _remove_stale(self, now: float) -> None:
        for debris in self.folder.glob(".*.tmp"):
            _unlink_if_older(debris, now - _TEMPORARY_FILE_LIFETIME)
        for note in (self.folder / _MARKER_FOLDER).iterdir():
            if not self.folder.joinpath(f".{note.name}.part").exists():
                _unlink_if_older(note, now - _MARKER_LIFETIME)

    def _part_path(self, key: str) -> Path:
        return self.folder / f".{_validate_key(key)}.part"

    def _marker_path(self, key: str) -> Path:
        return self.folder / _MARKER_FOLDER / _validate_key(key)


def transcode_json(data: bytes, encoding: str) -> bytes:
    """Write JSON in another encoding; a character that it does not have becomes JSON's escape of it."""
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
        raise LisRefusal("the order's key cannot be a file name")
    return key


def _read_cancelled_lines(cancel_file: Path, encoding: str) -> dict[str, str]:
    """Read what a cancel file that is still there says; nothing if there is none."""
    try:
        tree = exact_json.loads(cancel_file.read_bytes().decode(encoding))
        return {str(entry["line"]): str(entry["reason"]) for entry in tree["lines"]}
    except (FileNotFoundError, DataInvalidError, KeyError, TypeError, UnicodeDecodeError):
        return {}


def _unlink_if_older(path: Path, limit: float) -> None:
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < limit:
            path.unlink()
