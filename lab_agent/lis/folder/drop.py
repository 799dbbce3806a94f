"""The drop folder: which result files can be read now, what is in them, and where they go afterwards.

All methods block; one object is used by one thread at a time.
"""

from __future__ import annotations

import codecs
import hashlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab_agent.codec import load_message
from lab_agent.domain.results import LabMessage
from lab_agent.errors import DataInvalidError, LisUnavailable, Problem
from lab_agent.lis.folder.claimed import named_by_others, named_in
from lab_agent.lis.folder.documents import Attached, Documents, Missing
from lab_agent.lis.folder.files import (
    Identity,
    NotPlainError,
    TooLargeError,
    identity_of,
    put_away,
    put_back_claimed,
    read_plain,
    short_name,
    write_synced,
)
from lab_agent.lis.folder.names import is_temporary, matches, written
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.folder.settling import Settling
from lab_agent.lis.folder.tables import Table, read_table


@dataclass(frozen=True, slots=True)
class Found:
    """A result file as it was read: its stable name, and its bytes (None if it is too large)."""

    path: Path
    identity: Identity
    message: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Filled:
    """A message with its documents in it, and the files that they came from."""

    content: LabMessage
    files: tuple[Attached, ...]


class DropFolder:
    """The folder that the LIS puts results into."""

    def __init__(self, settings: FolderSettings) -> None:
        self._settings = settings
        self._settling = Settling(settings.settle)
        self._documents = Documents(settings, self._settling)

    def open(self) -> None:
        """Make the folders that are ours. Raises `LisUnavailable` where the drop folder is not there."""
        if not self._settings.results.is_dir():
            raise LisUnavailable("the folder for results is not there: create it, or mount it")
        for folder in (self._settings.done_folder, self._settings.failed_folder):
            folder.mkdir(parents=True, exist_ok=True)
        put_back_claimed(self._settings.results)

    def ready(self) -> tuple[Path, ...]:
        """Give the result files that have stopped changing, oldest first."""
        now = time.monotonic()
        seen = {path: identity for path in self._settings.results.iterdir() if (identity := _seen(path))}
        self._settling.keep_only(frozenset(path.name for path in seen) | self._documents.nested())
        calm = {path: identity for path, identity in seen.items() if self._settling.settled(path.name, identity, now)}
        messages = (path for path in calm if self._is_result(path.name))
        return tuple(sorted(messages, key=lambda path: (calm[path].mtime_ns, path.name)))[: self._settings.batch]

    def read(self, path: Path) -> Found | None:
        """Read a result file; None if it is gone or changing again."""
        try:
            data, identity = read_plain(path, self._settings.max_result_bytes)
        except TooLargeError:
            identity = identity_of(path)
            return Found(path, identity, _message(path, identity, "-"), None)
        except (FileNotFoundError, NotPlainError):
            return None
        return Found(path, identity, _message(path, identity, hashlib.sha256(data).hexdigest()[:16]), data)

    def understand(self, found: Found) -> Filled | None:
        """Make a message of it, documents read in; None while it waits for a document. Raises `DataInvalidError`."""
        if found.data is None:
            raise self._too_large()
        message = load_message(_utf8(found.data, self._settings.encoding), time_zone=self._settings.zone)
        filled = self._documents.fill(message)
        if not isinstance(filled, Missing):
            return Filled(filled.content, filled.files)
        if filled.late and self._settling.waited(found.message, time.monotonic()) < self._settings.document_wait:
            return None
        raise DataInvalidError(filled.problems)

    def is_table(self, path: Path) -> bool:
        """Whether a result file is a table."""
        return self._settings.csv is not None and matches(path.name, self._settings.csv_files)

    def table(self, found: Found) -> Table:
        """Read a table of results. Raises `DataInvalidError` where it cannot be read as one."""
        if found.data is None or self._settings.csv is None:
            raise self._too_large()
        return read_table(found.data, self._settings.csv, self._settings.zone)

    def rejected(self, found: Found, table: Table) -> None:
        """Put the bad rows of a table among the failed files, under one name however often we die on the way."""
        digest = hashlib.sha256(table.rejected or b"").hexdigest()[:16]
        target = self._settings.failed_folder / f"rows-{digest}-{found.path.name[-100:]}"
        write_synced(target, table.rejected or b"", 0o640)
        _give_reason(target, found, table.problems)

    def done(self, found: Found, files: Sequence[Attached] = ()) -> None:
        """Put the file away, after its documents: if we die in between, the file is still there to tell of them."""
        for file in files:
            self._put_away(file.path, file.identity, self._settings.done_folder)
        self._put_away(found.path, found.identity, self._settings.done_folder)
        self._settling.forget(found.message)

    def failed(self, found: Found, error: DataInvalidError) -> None:
        """Put the file among the failed ones, after its documents, with the reason beside it."""
        told = self._failed_documents(found)
        target = self._put_away(found.path, found.identity, self._settings.failed_folder)
        if target is not None:
            _give_reason(target, found, error.problems, told)
        self._settling.forget(found.message)

    def _failed_documents(self, found: Found) -> tuple[str, ...]:
        """Put the documents of a refused file among the failed ones, too, and say where each is.

        One that another file may name, or that is still being written, stays where it is.
        """
        data = _or_nothing(found.data, self._settings.encoding)
        files = self._documents.called(named_in(data) or ()) if data and not self.is_table(found.path) else ()
        if not files:
            return ()
        others = named_by_others(self._other_files(found.path, files), self._settings.max_result_bytes)
        wanted = None if others is None else {one.path for one in self._documents.called(others)}
        return tuple(self._failed_document(file, wanted) for file in files)

    def _failed_document(self, file: Attached, wanted: Collection[Path] | None) -> str:
        name = written(file.path.relative_to(self._settings.results).as_posix())
        if wanted is not None and file.path not in wanted and self._documents.is_settled(file):
            target = self._put_away(file.path, file.identity, self._settings.failed_folder)
            if target is not None:
                return f"Its document {name} lies here too, as {written(target.name)}: put both back once it is mended."
        return f"Its document {name} was left where it is, since another file may name it: move it away if none does."

    def _other_files(self, path: Path, documents: Collection[Attached]) -> Iterator[Path]:
        """The other reports that wait; tables name no documents."""
        own = {path, *(document.path for document in documents)}
        for other in self._settings.results.iterdir():
            if self._is_result(other.name) and other not in own and not self.is_table(other) and other.is_file():
                yield other

    def old_documents(self, found: Found) -> tuple[Attached, ...]:
        """Give the documents of a message that was taken before we died: those that are no younger than it."""
        try:
            message = load_message(_utf8(found.data or b"", self._settings.encoding), time_zone=self._settings.zone)
        except DataInvalidError:
            return ()
        return tuple(one for one in self._documents.there(message) if one.identity.mtime_ns <= found.identity.mtime_ns)

    def _is_result(self, name: str) -> bool:
        tables = self._settings.csv is not None and matches(name, self._settings.csv_files)
        return tables or matches(name, self._settings.result_files)

    def _too_large(self) -> DataInvalidError:
        limit = self._settings.max_result_bytes
        return DataInvalidError(
            (
                Problem(
                    "document", f"is larger than {limit} bytes", "send smaller files, or raise max_result_bytes of this adapter"
                ),
            )
        )

    def _put_away(self, path: Path, identity: Identity, folder: Path) -> Path | None:
        self._settling.forget(path.name)
        try:
            return put_away(path, identity, folder)
        except FileNotFoundError:
            return None  # somebody else was faster


def _seen(path: Path) -> Identity | None:
    try:
        return None if is_temporary(path.name) else identity_of(path)
    except (FileNotFoundError, NotPlainError):
        return None


def _give_reason(target: Path, found: Found, problems: Sequence[Problem], told: Sequence[str] = ()) -> None:
    lines = [f"{written(found.path.name)} was not taken.", *map(str, problems), *told]
    target.with_name(f"{short_name(target.name, 200)}.reason.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _or_nothing(data: bytes | None, encoding: str) -> bytes:
    try:
        return _utf8(data or b"", encoding)
    except DataInvalidError:
        return b""


def _utf8(data: bytes, encoding: str) -> bytes:
    if codecs.lookup(encoding).name == "utf-8":
        return data
    try:
        return data.decode(encoding).encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError):
        problem = Problem("document", f"is not written in {encoding}", "set encoding to what the LIS writes")
        raise DataInvalidError((problem,)) from None


def _message(path: Path, identity: Identity, digest: str) -> str:
    """Name this arrival: the same file is the same message after a crash, the same text arriving again is another one."""
    return f"{written(path.name)}:{identity.mtime_ns}:{identity.size}:{digest}"
