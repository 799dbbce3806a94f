"""The results folder: which files are ready, what is in them, and where they are moved afterwards.

All methods block; one object is used by one thread at a time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
)
from lab_agent.lis.folder.folder_watch import Finding, FolderWatch, TakenFiles
from lab_agent.lis.folder.raw_results import is_json, load_json_result, to_file_time, to_utf8
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.raw_messages import message_id
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.errors import DataInvalidError, LisUnavailable, Problem


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result file as read: its stable message id, and its bytes (None if it is too large)."""

    path: Path
    identity: FileIdentity
    message_id: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class ParsedResult:
    """A message including its documents, and the files they came from."""

    content: LabMessage
    files: tuple[AttachedFile, ...]


class ResultFolder:
    """The folder that the LIS writes results to."""

    def __init__(self, settings: FolderSettings) -> None:
        self._settings = settings
        self._settle_tracker = SettleTracker(settings.settle)
        self._documents = DocumentReader(settings, self._settle_tracker)
        self._watch = FolderWatch(settings.results, frozenset({settings.done_folder, settings.failed_folder}), self._is_result)
        self._taken = TakenFiles(settings.longest_pause)

    def open(self) -> None:
        """Create the subfolders. Raises `LisUnavailable` if the results folder does not exist."""
        if not self._settings.results.is_dir():
            raise LisUnavailable("the folder for results does not exist: create or mount it")
        for folder in (self._settings.done_folder, self._settings.failed_folder):
            folder.mkdir(parents=True, exist_ok=True)
        restore_claimed_files(self._settings.results)

    def ready_files(self) -> tuple[Path, ...]:
        """The result files that have stopped changing, oldest first."""
        now = time.monotonic()
        seen = self._visible_files()
        self._settle_tracker.keep_only(frozenset(path.name for path in seen) | self._documents.subfolder_names())
        settled = {path: identity for path, identity in seen.items() if self._settle_tracker.is_settled(path.name, identity, now)}
        messages = (path for path in settled if self._is_result(path.name) and self._is_marked(path, seen))
        return tuple(sorted(messages, key=lambda path: (settled[path].mtime_ns, path.name)))[: self._settings.batch]

    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """What a person has to look at, each with the name of its entry: what is not read, and what was read too early."""
        now = time.monotonic()
        changed = [(name, Finding.CHANGED_AFTER_READING) for name in self._taken.put_back_changed(self._settings.results, now)]
        return (*changed, *self._watch.find(self._find_without_marker(now)))

    def _visible_files(self) -> dict[Path, FileIdentity]:
        return {path: identity for path in self._settings.results.iterdir() if (identity := _visible_identity(path))}

    def mark_told(self, name: str, finding: Finding) -> None:
        """Write the reason into `failed`, and remember that it was told."""
        target = self._settings.failed_folder / f"{shorten_name(name, 200)}.reason.txt"
        target.write_text(f"{printable_name(name)}: {finding.value}.\n", encoding="utf-8")
        self._watch.mark_told(name, finding)

    def _find_without_marker(self, now: float) -> Iterator[tuple[str, Finding]]:
        """The result files that have waited for their marker as long as a writer may pause."""
        if self._settings.complete_marker is None:
            return
        seen = self._visible_files()
        for path, identity in seen.items():
            waited = self._settle_tracker.seconds_unchanged(path.name, identity, now)
            if self._is_result(path.name) and not self._is_marked(path, seen) and waited >= self._settings.longest_pause:
                yield path.name, Finding.NO_MARKER

    def _is_marked(self, path: Path, seen: Mapping[Path, FileIdentity]) -> bool:
        """Whether a result has its marker, if markers are used; a marker older than the file is that of an earlier one."""
        marker = self._settings.marker_name(path)
        if marker is None:
            return True
        found = seen.get(path.with_name(marker))
        return found is not None and found.mtime_ns >= seen[path].mtime_ns

    def read(self, path: Path) -> ResultFile | None:
        """Read a result file; None if it is gone or still changing."""
        try:
            data, identity = read_regular_file(path, self._settings.max_result_bytes)
        except FileTooLargeError:
            identity = identity_of(path)
            return ResultFile(path, identity, f"{_file_id(path, identity)}:-", None)
        except (FileNotFoundError, NotRegularFileError):
            return None
        return ResultFile(path, identity, message_id(_file_id(path, identity), data), data)

    def read_first(self, paths: Sequence[Path], max_bytes: int) -> list[ResultFile | None]:
        """Read the first files as `read` does, at least one, until they are larger than `max_bytes`."""
        files: list[ResultFile | None] = []
        for path in paths:
            file = self.read(path)
            files.append(file)
            max_bytes -= 0 if file is None else file.identity.size
            if max_bytes <= 0:
                break
        return files

    def parse_first(self, files: Sequence[ResultFile], max_bytes: int) -> list[ParsedResult | DataInvalidError | None]:
        """Parse the first files, at least one, until they and their documents are larger than `max_bytes`."""
        outcomes: list[ParsedResult | DataInvalidError | None] = []
        for file in files:
            outcome: ParsedResult | DataInvalidError | None
            try:
                outcome = self.parse(file)
            except DataInvalidError as invalid:
                outcome = invalid
            outcomes.append(outcome)
            documents = outcome.files if isinstance(outcome, ParsedResult) else ()
            max_bytes -= file.identity.size + sum(document.identity.size for document in documents)
            if max_bytes <= 0:
                break
        return outcomes

    def parse(self, result_file: ResultFile) -> ParsedResult | None:
        """Parse it and load its documents; None while it waits for a document. Raises `DataInvalidError`."""
        if result_file.data is None:
            raise self._too_large_error()
        try:
            message = load_json_result(result_file.data, self._settings)
        except DataInvalidError:
            if not is_json(result_file.data, self._settings.encoding) and self._may_grow(result_file):
                return None
            raise
        loaded = self._documents.load_documents(message)
        if not isinstance(loaded, MissingDocuments):
            return None if any(map(self._document_may_grow, loaded.cut_off)) else ParsedResult(loaded.content, loaded.files)
        if (
            loaded.may_still_arrive
            and self._settle_tracker.seconds_waiting(result_file.message_id, time.monotonic()) < self._settings.document_wait
        ):
            return None
        raise DataInvalidError(loaded.problems)

    def is_csv(self, path: Path) -> bool:
        """Whether a result file is CSV."""
        return self._settings.csv is not None and matches_pattern(path.name, self._settings.csv_files)

    def parse_csv(self, result_file: ResultFile) -> CsvResults | None:
        """Parse a CSV file of results; None while it may be unfinished. Raises `DataInvalidError` if it is not valid CSV."""
        rules = self._settings.csv_rules
        if result_file.data is None or rules is None:
            raise self._too_large_error()
        if not result_file.data.rstrip(b"\0").endswith((b"\n", b"\r")) and self._may_grow(result_file):
            return None
        return parse_csv(result_file.data, rules, self._settings.zone, to_file_time(result_file.identity.mtime_ns))

    def _may_grow(self, result_file: ResultFile) -> bool:
        """Whether its writer may only be pausing; a marker says that it is not."""
        if self._settings.complete_marker is not None:
            return False
        waited = self._settle_tracker.seconds_unchanged(result_file.path.name, result_file.identity, time.monotonic())
        return waited < self._settings.longest_pause

    def _document_may_grow(self, document: AttachedFile) -> bool:
        """Whether the writer of a document that is cut off may only be pausing; if it stays so, it is held for a person."""
        waited = self._documents.seconds_unchanged(document)
        return self._settings.complete_marker is None and waited < self._settings.longest_pause

    def save_rejected_rows(self, result_file: ResultFile, csv_results: CsvResults) -> None:
        """Write the rejected rows of a CSV file to `failed`, under the same name however often a crash repeats it."""
        digest = hashlib.sha256(csv_results.rejected_rows or b"").hexdigest()[:16]
        target = self._settings.failed_folder / f"rows-{digest}-{result_file.path.name[-100:]}"
        write_atomically(target, csv_results.rejected_rows or b"", 0o640)
        _write_reason(target, result_file, csv_results.problems)

    def move_to_done(self, result_file: ResultFile, files: Sequence[AttachedFile] = ()) -> None:
        """Move the file to `done`, after its documents: after a crash in between, the file still names them."""
        for file in files:
            self._move_file(file.path, file.identity, self._settings.done_folder)
        moved = self._move_file(result_file.path, result_file.identity, self._settings.done_folder)
        self._end(result_file, moved)

    def move_to_failed(self, result_file: ResultFile, error: DataInvalidError) -> None:
        """Move the file to `failed`, after its documents, with the reason beside it."""
        notes = self._move_documents_to_failed(result_file)
        target = self._move_file(result_file.path, result_file.identity, self._settings.failed_folder)
        if target is not None:
            _write_reason(target, result_file, error.problems, notes)
        self._end(result_file, target)

    def _end(self, result_file: ResultFile, moved: Path | None) -> None:
        """Forget a file that was moved, but for what its writer may still do to it."""
        self._settle_tracker.forget(result_file.message_id)
        if moved is None:
            return
        self._taken.add(result_file.path.name, moved, result_file.identity, time.monotonic())
        if (marker := self._settings.marker_name(result_file.path)) is not None:
            result_file.path.with_name(marker).unlink(missing_ok=True)

    def _move_documents_to_failed(self, result_file: ResultFile) -> tuple[str, ...]:
        """Move the documents of a rejected file to `failed`, too; returns a note on each.

        A document that another file may name, or that is still being written, stays where it is.
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
                return f"Its document {name} was moved here too, as {printable_name(target.name)}: move both back once corrected."
        return f"Its document {name} was not moved, since another file may name it: remove it if none does."

    def _other_reports(self, path: Path, documents: Collection[AttachedFile]) -> Iterator[Path]:
        """The other waiting reports; CSV files name no documents."""
        own = {path, *(document.path for document in documents)}
        for other in self._settings.results.iterdir():
            if self._is_result(other.name) and other not in own and not self.is_csv(other) and other.is_file():
                yield other

    def documents_not_newer(self, result_file: ResultFile) -> tuple[AttachedFile, ...]:
        """The documents of a message stored before a crash: those not newer than the message."""
        try:
            message = load_json_result(result_file.data or b"", self._settings)
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
            (Problem("document", f"is larger than {limit} bytes", "send smaller files, or raise max_result_bytes"),)
        )

    def _move_file(self, path: Path, identity: FileIdentity, folder: Path) -> Path | None:
        self._settle_tracker.forget(path.name)
        try:
            return claim_and_move(path, identity, folder)
        except FileNotFoundError:
            return None  # another process was faster


def _visible_identity(path: Path) -> FileIdentity | None:
    try:
        return None if is_temporary(path.name) else identity_of(path)
    except (FileNotFoundError, NotRegularFileError):
        return None


def _write_reason(target: Path, result_file: ResultFile, problems: Sequence[Problem], notes: Sequence[str] = ()) -> None:
    lines = [f"{printable_name(result_file.path.name)} was rejected.", *map(str, problems), *notes]
    target.with_name(f"{shorten_name(target.name, 200)}.reason.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _to_utf8_or_empty(data: bytes | None, encoding: str) -> bytes:
    try:
        return to_utf8(data or b"", encoding)
    except DataInvalidError:
        return b""


def _file_id(path: Path, identity: FileIdentity) -> str:
    """Identify this arrival: the same file is the same message after a crash; the same text in a new file is another one."""
    return f"{printable_name(path.name)}:{identity.mtime_ns}:{identity.size}"
