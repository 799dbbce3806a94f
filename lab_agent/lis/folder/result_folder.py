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

from lab_agent.domain.lab_messages import LabMessage
from lab_agent.errors import DataInvalidError, LisUnavailable, Problem
from lab_agent.lis.folder.csv_results import CsvResults, parse_csv
from lab_agent.lis.folder.documents import (
    AttachedFile,
    DocumentReader,
    MissingDocuments,
    documents_referenced_by,
    referenced_documents,
)
from lab_agent.lis.folder.files import (
    FileIdentity,
    FileTooLargeError,
    NotRegularFileError,
    SettleTracker,
    claim_and_move,
    identity_of,
    is_temporary,
    matches_pattern,
    printable_name,
    read_regular_file,
    restore_claimed_files,
    shorten_name,
    write_atomically,
)
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.serialization import load_message


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result file as it was read: its stable name, and its bytes (None if it is too large)."""

    path: Path
    identity: FileIdentity
    message_name: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class ParsedResult:
    """A message with its documents in it, and the files that they came from."""

    content: LabMessage
    files: tuple[AttachedFile, ...]


class ResultFolder:
    """The folder that the LIS puts results into."""

    def __init__(self, settings: FolderSettings) -> None:
        self._settings = settings
        self._settle_tracker = SettleTracker(settings.settle)
        self._documents = DocumentReader(settings, self._settle_tracker)

    def open(self) -> None:
        """Make the folders that are ours. Raises `LisUnavailable` where the drop folder is not there."""
        if not self._settings.results.is_dir():
            raise LisUnavailable("the folder for results is not there: create it, or mount it")
        for folder in (self._settings.done_folder, self._settings.failed_folder):
            folder.mkdir(parents=True, exist_ok=True)
        restore_claimed_files(self._settings.results)

    def ready_files(self) -> tuple[Path, ...]:
        """Give the result files that have stopped changing, oldest first."""
        now = time.monotonic()
        seen = {path: identity for path in self._settings.results.iterdir() if (identity := _visible_identity(path))}
        self._settle_tracker.keep_only(frozenset(path.name for path in seen) | self._documents.subfolder_names())
        calm = {path: identity for path, identity in seen.items() if self._settle_tracker.is_settled(path.name, identity, now)}
        messages = (path for path in calm if self._is_result(path.name))
        return tuple(sorted(messages, key=lambda path: (calm[path].mtime_ns, path.name)))[: self._settings.batch]

    def read(self, path: Path) -> ResultFile | None:
        """Read a result file; None if it is gone or changing again."""
        try:
            data, identity = read_regular_file(path, self._settings.max_result_bytes)
        except FileTooLargeError:
            identity = identity_of(path)
            return ResultFile(path, identity, _message_name(path, identity, "-"), None)
        except (FileNotFoundError, NotRegularFileError):
            return None
        return ResultFile(path, identity, _message_name(path, identity, hashlib.sha256(data).hexdigest()[:16]), data)

    def parse(self, result_file: ResultFile) -> ParsedResult | None:
        """Make a message of it, documents read in; None while it waits for a document. Raises `DataInvalidError`."""
        if result_file.data is None:
            raise self._too_large_error()
        message = load_message(_to_utf8(result_file.data, self._settings.encoding), time_zone=self._settings.zone)
        filled = self._documents.load_documents(message)
        if not isinstance(filled, MissingDocuments):
            return ParsedResult(filled.content, filled.files)
        if (
            filled.may_still_arrive
            and self._settle_tracker.seconds_waiting(result_file.message_name, time.monotonic()) < self._settings.document_wait
        ):
            return None
        raise DataInvalidError(filled.problems)

    def is_csv(self, path: Path) -> bool:
        """Whether a result file is a table."""
        return self._settings.csv is not None and matches_pattern(path.name, self._settings.csv_files)

    def parse_csv(self, result_file: ResultFile) -> CsvResults:
        """Read a table of results. Raises `DataInvalidError` where it cannot be read as one."""
        if result_file.data is None or self._settings.csv is None:
            raise self._too_large_error()
        return parse_csv(result_file.data, self._settings.csv, self._settings.zone)

    def save_rejected_rows(self, result_file: ResultFile, csv_results: CsvResults) -> None:
        """Put the bad rows of a table among the failed files, under one name however often we die on the way."""
        digest = hashlib.sha256(csv_results.rejected_rows or b"").hexdigest()[:16]
        target = self._settings.failed_folder / f"rows-{digest}-{result_file.path.name[-100:]}"
        write_atomically(target, csv_results.rejected_rows or b"", 0o640)
        _write_reason(target, result_file, csv_results.problems)

    def move_to_done(self, result_file: ResultFile, files: Sequence[AttachedFile] = ()) -> None:
        """Put the file away, after its documents: if we die in between, the file is still there to tell of them."""
        for file in files:
            self._move_file(file.path, file.identity, self._settings.done_folder)
        self._move_file(result_file.path, result_file.identity, self._settings.done_folder)
        self._settle_tracker.forget(result_file.message_name)

    def move_to_failed(self, result_file: ResultFile, error: DataInvalidError) -> None:
        """Put the file among the failed ones, after its documents, with the reason beside it."""
        told = self._move_documents_to_failed(result_file)
        target = self._move_file(result_file.path, result_file.identity, self._settings.failed_folder)
        if target is not None:
            _write_reason(target, result_file, error.problems, told)
        self._settle_tracker.forget(result_file.message_name)

    def _move_documents_to_failed(self, result_file: ResultFile) -> tuple[str, ...]:
        """Put the documents of a refused file among the failed ones, too, and say where each is.

        One that another file may name, or that is still being written, stays where it is.
        """
        data = _to_utf8_or_empty(result_file.data, self._settings.encoding)
        files = self._documents.find_files(referenced_documents(data) or ()) if data and not self.is_csv(result_file.path) else ()
        if not files:
            return ()
        others = documents_referenced_by(self._other_reports(result_file.path, files), self._settings.max_result_bytes)
        wanted = None if others is None else {one.path for one in self._documents.find_files(others)}
        return tuple(self._move_document_to_failed(file, wanted) for file in files)

    def _move_document_to_failed(self, file: AttachedFile, still_referenced: Collection[Path] | None) -> str:
        name = printable_name(file.path.relative_to(self._settings.results).as_posix())
        if still_referenced is not None and file.path not in still_referenced and self._documents.is_settled(file):
            target = self._move_file(file.path, file.identity, self._settings.failed_folder)
            if target is not None:
                return f"Its document {name} lies here too, as {printable_name(target.name)}: put both back once it is mended."
        return f"Its document {name} was left where it is, since another file may name it: move it away if none does."

    def _other_reports(self, path: Path, documents: Collection[AttachedFile]) -> Iterator[Path]:
        """The other reports that wait; tables name no documents."""
        own = {path, *(document.path for document in documents)}
        for other in self._settings.results.iterdir():
            if self._is_result(other.name) and other not in own and not self.is_csv(other) and other.is_file():
                yield other

    def documents_not_newer(self, result_file: ResultFile) -> tuple[AttachedFile, ...]:
        """Give the documents of a message that was taken before we died: those that are no younger than it."""
        try:
            message = load_message(_to_utf8(result_file.data or b"", self._settings.encoding), time_zone=self._settings.zone)
        except DataInvalidError:
            return ()
        return tuple(
            one for one in self._documents.find_referenced(message) if one.identity.mtime_ns <= result_file.identity.mtime_ns
        )

    def _is_result(self, name: str) -> bool:
        tables = self._settings.csv is not None and matches_pattern(name, self._settings.csv_files)
        return tables or matches_pattern(name, self._settings.result_files)

    def _too_large_error(self) -> DataInvalidError:
        limit = self._settings.max_result_bytes
        return DataInvalidError(
            (
                Problem(
                    "document", f"is larger than {limit} bytes", "send smaller files, or raise max_result_bytes of this adapter"
                ),
            )
        )

    def _move_file(self, path: Path, identity: FileIdentity, folder: Path) -> Path | None:
        self._settle_tracker.forget(path.name)
        try:
            return claim_and_move(path, identity, folder)
        except FileNotFoundError:
            return None  # somebody else was faster


def _visible_identity(path: Path) -> FileIdentity | None:
    try:
        return None if is_temporary(path.name) else identity_of(path)
    except (FileNotFoundError, NotRegularFileError):
        return None


def _write_reason(target: Path, result_file: ResultFile, problems: Sequence[Problem], notes: Sequence[str] = ()) -> None:
    lines = [f"{printable_name(result_file.path.name)} was not taken.", *map(str, problems), *notes]
    target.with_name(f"{shorten_name(target.name, 200)}.reason.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _to_utf8_or_empty(data: bytes | None, encoding: str) -> bytes:
    try:
        return _to_utf8(data or b"", encoding)
    except DataInvalidError:
        return b""


def _to_utf8(data: bytes, encoding: str) -> bytes:
    if codecs.lookup(encoding).name == "utf-8":
        return data
    try:
        return data.decode(encoding).encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError):
        problem = Problem("document", f"is not written in {encoding}", "set encoding to what the LIS writes")
        raise DataInvalidError((problem,)) from None


def _message_name(path: Path, identity: FileIdentity, digest: str) -> str:
    """Name this arrival: the same file is the same message after a crash, the same text arriving again is another one."""
    return f"{printable_name(path.name)}:{identity.mtime_ns}:{identity.size}:{digest}"
