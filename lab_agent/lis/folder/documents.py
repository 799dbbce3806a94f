"""The documents that a report names by file: found beside it, within the drop folder and nowhere else, and read in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lab_agent.domain.documents import map_documents
from lab_agent.domain.results import Document, LabMessage, LabReport
from lab_agent.errors import Problem
from lab_agent.lis.folder.files import FileIdentity, FileTooLargeError, NotRegularFileError, identity_of, read_regular_file
from lab_agent.lis.folder.names import is_safe_relative_path
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.folder.settling import SettleTracker

_NOT_ARRIVED = "did not arrive in time"


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that a document came from."""

    path: Path
    identity: FileIdentity


@dataclass(frozen=True, slots=True)
class MissingDocuments:
    """Documents that could not be read in; `late` if all that is wrong is that they are not there or not finished yet."""

    problems: tuple[Problem, ...]
    may_still_arrive: bool


@dataclass(frozen=True, slots=True)
class LoadedMessage:
    """A message whose documents are all read in."""

    content: LabMessage
    files: tuple[AttachedFile, ...]


class DocumentReader:
    """Reads documents. All methods block."""

    def __init__(self, settings: FolderSettings, settle_tracker: SettleTracker) -> None:
        self._folder = settings.results
        self._own_folders = (settings.done_folder, settings.failed_folder)
        self._max_bytes = settings.max_document_bytes
        self._settle_tracker = settle_tracker
        self._subfolder_names: set[str] = set()

    def subfolder_names(self) -> frozenset[str]:
        """Names of files in folders below that were asked for."""
        return frozenset(self._subfolder_names)

    def find_referenced(self, message: LabMessage) -> tuple[AttachedFile, ...]:
        """Give the files that the message names and that are there."""
        return self.find_files({document.file or "" for _, document in _documents_by_file(message)})

    def find_files(self, names: Iterable[str]) -> tuple[AttachedFile, ...]:
        """Give the files of these names that are there."""
        paths = (self._resolve_path(name) for name in sorted(names))
        return tuple(AttachedFile(path, identity_of(path)) for path in paths if path is not None and _is_regular_file(path))

    def is_settled(self, file: AttachedFile) -> bool:
        """Whether a file has stopped changing."""
        return self._check_settled(file.path.relative_to(self._folder).as_posix(), file.identity)

    def load_documents(self, message: LabMessage) -> LoadedMessage | MissingDocuments:
        """Read every document in that is named by file."""
        files: dict[str, AttachedFile] = {}
        contents: dict[str, bytes] = {}
        problems, room = [], self._max_bytes
        for where, document in _documents_by_file(message):
            name = document.file or ""
            if name in contents:
                continue
            try:
                contents[name], files[name] = self._read_document(name, room)
                room -= len(contents[name])
            except OSError as exc:
                problems.append(_document_problem(f"{where}.file", exc, self._max_bytes))
        if problems:
            return MissingDocuments(tuple(problems), may_still_arrive=all(problem.what == _NOT_ARRIVED for problem in problems))
        return LoadedMessage(_with_contents(message, contents), tuple(files.values()))

    def _read_document(self, name: str, max_bytes: int) -> tuple[bytes, AttachedFile]:
        path = self._resolve_path(name)
        if path is None:
            raise PermissionError(name)
        settled = self._check_settled(name, identity_of(path))
        data, identity = read_regular_file(path, max_bytes)
        if not settled or not data:  # an empty file has been created, and not written yet
            raise FileNotFoundError(name)
        return data, AttachedFile(path, identity)

    def _check_settled(self, name: str, identity: FileIdentity) -> bool:
        if "/" in name:
            self._subfolder_names.add(name)
        return self._settle_tracker.is_settled(name, identity, time.monotonic())

    def _resolve_path(self, name: str) -> Path | None:
        """Give the place of a document; None where it does not lie within the drop folder, or lies on our own shelves."""
        if not is_safe_relative_path(name):
            return None
        path, root = self._folder / name, self._folder.resolve()
        parent = path.parent.resolve()
        shelved = any(parent.is_relative_to(shelf.resolve()) for shelf in self._own_folders)
        return path if parent.is_relative_to(root) and not shelved else None


def _document_problem(where: str, exc: OSError, limit: int) -> Problem:
    match exc:
        case FileNotFoundError():
            return Problem(where, _NOT_ARRIVED, "put a report's documents there before the report")
        case FileTooLargeError():
            what = f"is too large: the documents of one report may have {limit} bytes together"
            return Problem(where, what, "send smaller documents, or raise max_document_bytes of this adapter")
        case NotRegularFileError():
            return Problem(where, "is no plain file", "put the document itself there")
        case PermissionError():
            return Problem(where, "must not be read", "name a readable file that lies within the folder for results")
        case _:
            raise exc


def _documents_by_file(message: LabMessage) -> Iterator[tuple[str, Document]]:
    """Give the documents that are named by file, each with its place."""
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
