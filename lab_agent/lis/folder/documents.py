"""The documents that a report names by file: found within the results folder and nowhere else, and loaded into the message.

For a rejected file, also which documents it names, as far as it can be read, and whether other files name them too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab_agent.lis.document_formats import detect_media_type, is_whole
from lab_agent.lis.folder.files import (
    FileIdentity,
    FileTooLargeError,
    NotRegularFileError,
    SettleTracker,
    identity_of,
    is_safe_relative_path,
    read_regular_file,
)
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.lab_messages import Document, LabMessage, LabReport
from lab_agent.lis.report_documents import map_documents
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, Problem

MAX_SCANNED_FILES = 500
"""At most this many other files are searched for references; if more wait, every document stays where it is."""


def referenced_documents(data: bytes) -> frozenset[str] | None:
    """The documents that a result file names; None if that cannot be determined."""
    try:
        tree = exact_json.loads(exact_json.strip_byte_order_mark(data))
    except (DataInvalidError, RecursionError):
        return None
    return frozenset(_document_file_names(tree)) if isinstance(tree, Mapping) else None


def documents_referenced_by(paths: Iterable[Path], limit: int) -> frozenset[str] | None:
    """The documents that any of these files names; None if one of them cannot be read. `limit` is in bytes."""
    found: set[str] = set()
    for count, path in enumerate(paths):
        names = None if count >= MAX_SCANNED_FILES else _referenced_by_file(path, limit)
        if names is None:
            return None
        found |= names
    return frozenset(found)


def _referenced_by_file(path: Path, limit: int) -> frozenset[str] | None:
    try:
        data, _ = read_regular_file(path, limit)
    except FileNotFoundError:
        return frozenset()
    except OSError:
        return None
    return referenced_documents(data)


def _document_file_names(tree: Mapping[str, Any]) -> Iterator[str]:
    attached = (one.get("value_attachment") for one in _objects(tree.get("observations")))
    for document in (*_objects(tree.get("documents")), *attached):
        if isinstance(document, Mapping) and isinstance(document.get("file"), str):
            yield document["file"]


def _objects(listed: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(listed, list):
        yield from (one for one in listed if isinstance(one, Mapping))


_NOT_ARRIVED = "did not arrive in time"


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """The file of a document."""

    path: Path
    identity: FileIdentity


@dataclass(frozen=True, slots=True)
class MissingDocuments:
    """Documents that could not be loaded; `may_still_arrive` if all of them are merely missing or unfinished."""

    problems: tuple[Problem, ...]
    may_still_arrive: bool


@dataclass(frozen=True, slots=True)
class LoadedMessage:
    """A message whose documents are all loaded; `cut_off` are the files that end before their format says."""

    content: LabMessage
    files: tuple[AttachedFile, ...]
    cut_off: tuple[AttachedFile, ...] = ()


class DocumentReader:
    """Loads documents. All methods block."""

    def __init__(self, settings: FolderSettings, settle_tracker: SettleTracker) -> None:
        self._folder = settings.results
        self._own_folders = (settings.done_folder, settings.failed_folder)
        self._max_bytes = settings.max_document_bytes
        self._settle_tracker = settle_tracker
        self._subfolder_names: set[str] = set()

    def subfolder_names(self) -> frozenset[str]:
        """The requested names that lie in subfolders."""
        return frozenset(self._subfolder_names)

    def find_referenced(self, message: LabMessage) -> tuple[AttachedFile, ...]:
        """The existing files that the message names."""
        return self.find_files({document.file or "" for _, document in _documents_by_file(message)})

    def find_files(self, names: Iterable[str]) -> tuple[AttachedFile, ...]:
        """The existing files among these names."""
        paths = (self._resolve_path(name) for name in sorted(names))
        return tuple(AttachedFile(path, identity_of(path)) for path in paths if path is not None and _is_regular_file(path))

    def is_settled(self, file: AttachedFile) -> bool:
        """Whether a file has stopped changing."""
        return self._check_settled(self._name_of(file), file.identity)

    def seconds_unchanged(self, file: AttachedFile) -> float:
        """Seconds for which the file has been seen unchanged."""
        return self._settle_tracker.seconds_unchanged(self._name_of(file), file.identity, time.monotonic())

    def _name_of(self, file: AttachedFile) -> str:
        return file.path.relative_to(self._folder).as_posix()

    def load_documents(self, message: LabMessage) -> LoadedMessage | MissingDocuments:
        """Load every document that is named by file."""
        files: dict[str, AttachedFile] = {}
        contents: dict[str, bytes] = {}
        problems, remaining = [], self._max_bytes
        for where, document in _documents_by_file(message):
            name = document.file or ""
            if name in contents:
                continue
            try:
                contents[name], files[name] = self._read_document(name, remaining)
                remaining -= len(contents[name])
            except OSError as exc:
                problems.append(_document_problem(f"{where}.file", exc, self._max_bytes))
        if problems:
            return MissingDocuments(tuple(problems), may_still_arrive=all(problem.what == _NOT_ARRIVED for problem in problems))
        cut_off = tuple(files[name] for name, data in contents.items() if not is_whole(data, detect_media_type(data) or ""))
        return LoadedMessage(_with_contents(message, contents), tuple(files.values()), cut_off)

    def _read_document(self, name: str, max_bytes: int) -> tuple[bytes, AttachedFile]:
        path = self._resolve_path(name)
        if path is None:
            raise PermissionError(name)
        settled = self._check_settled(name, identity_of(path))
        data, identity = read_regular_file(path, max_bytes)
        if not settled or not data:  # an empty file was created but not written yet
            raise FileNotFoundError(name)
        return data, AttachedFile(path, identity)

    def _check_settled(self, name: str, identity: FileIdentity) -> bool:
        if "/" in name:
            self._subfolder_names.add(name)
        return self._settle_tracker.is_settled(name, identity, time.monotonic())

    def _resolve_path(self, name: str) -> Path | None:
        """The path of a document; None if it is outside the results folder, or in `done` or `failed`."""
        if not is_safe_relative_path(name):
            return None
        path, root = self._folder / name, self._folder.resolve()
        parent = path.parent.resolve()
        moved = any(parent.is_relative_to(folder.resolve()) for folder in self._own_folders)
        return path if parent.is_relative_to(root) and not moved else None


def _document_problem(where: str, exc: OSError, limit: int) -> Problem:
    match exc:
        case FileNotFoundError():
            return Problem(where, _NOT_ARRIVED, "write a report's documents before the report")
        case FileTooLargeError():
            what = f"is too large: the documents of one report may have {limit} bytes in total"
            return Problem(where, what, "send smaller documents, or raise max_document_bytes")
        case NotRegularFileError():
            return Problem(where, "is not a regular file", "provide the document itself")
        case PermissionError():
            return Problem(where, "cannot be read", "name a readable file within the folder for results")
        case _:
            raise exc


def _documents_by_file(message: LabMessage) -> Iterator[tuple[str, Document]]:
    """The documents named by file, each with its location in the message."""
    if isinstance(message, LabReport):
        yield from ((f"documents[{index}]", one) for index, one in enumerate(message.documents) if one.file is not None)
        for index, observation in enumerate(message.observations):
            attachment = observation.value_attachment
            if attachment is not None and attachment.file is not None:
                yield f"observations[{index}].value_attachment", attachment


def _with_contents(message: LabMessage, contents: dict[str, bytes]) -> LabMessage:
    if not isinstance(message, LabReport):
        return message

    def fill(document: Document) -> Document:
        if document.file is None:
            return document
        return replace(document, content=contents[document.file], file=None)

    return map_documents(message, fill)


def _is_regular_file(path: Path) -> bool:
    try:
        identity_of(path)
    except (FileNotFoundError, NotRegularFileError):
        return False
    return True
