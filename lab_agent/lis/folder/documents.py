"""The documents that a report names by file: found beside it, within the drop folder and nowhere else, and read in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lab_agent.domain.documents import with_documents
from lab_agent.domain.results import Document, LabMessage, LabReport
from lab_agent.errors import Problem
from lab_agent.lis.folder.files import Identity, NotPlainError, TooLargeError, identity_of, read_plain
from lab_agent.lis.folder.names import is_within
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.folder.settling import Settling

_LATE = "did not arrive in time"


@dataclass(frozen=True, slots=True)
class Attached:
    """A file that a document came from."""

    path: Path
    identity: Identity


@dataclass(frozen=True, slots=True)
class Missing:
    """Documents that could not be read in; `late` if all that is wrong is that they are not there or not finished yet."""

    problems: tuple[Problem, ...]
    late: bool


@dataclass(frozen=True, slots=True)
class Full:
    """A message whose documents are all read in."""

    content: LabMessage
    files: tuple[Attached, ...]


class Documents:
    """Reads documents. All methods block."""

    def __init__(self, settings: FolderSettings, settling: Settling) -> None:
        self._folder = settings.results
        self._shelves = (settings.done_folder, settings.failed_folder)
        self._limit = settings.max_document_bytes
        self._settling = settling
        self._nested: set[str] = set()

    def nested(self) -> frozenset[str]:
        """Names of files in folders below that were asked for."""
        return frozenset(self._nested)

    def there(self, message: LabMessage) -> tuple[Attached, ...]:
        """Give the files that the message names and that are there."""
        return self.called({document.file or "" for _, document in _named(message)})

    def called(self, names: Iterable[str]) -> tuple[Attached, ...]:
        """Give the files of these names that are there."""
        paths = (self._path(name) for name in sorted(names))
        return tuple(Attached(path, identity_of(path)) for path in paths if path is not None and _is_plain(path))

    def is_settled(self, file: Attached) -> bool:
        """Whether a file has stopped changing."""
        return self._settled(file.path.relative_to(self._folder).as_posix(), file.identity)

    def fill(self, message: LabMessage) -> Full | Missing:
        """Read every document in that is named by file."""
        files: dict[str, Attached] = {}
        contents: dict[str, bytes] = {}
        problems, room = [], self._limit
        for where, document in _named(message):
            name = document.file or ""
            if name in contents:
                continue
            try:
                contents[name], files[name] = self._read(name, room)
                room -= len(contents[name])
            except OSError as exc:
                problems.append(_problem(f"{where}.file", exc, self._limit))
        if problems:
            return Missing(tuple(problems), late=all(problem.what == _LATE for problem in problems))
        return Full(_filled(message, contents), tuple(files.values()))

    def _read(self, name: str, room: int) -> tuple[bytes, Attached]:
        path = self._path(name)
        if path is None:
            raise PermissionError(name)
        settled = self._settled(name, identity_of(path))
        data, identity = read_plain(path, room)
        if not settled or not data:  # an empty file has been created, and not written yet
            raise FileNotFoundError(name)
        return data, Attached(path, identity)

    def _settled(self, name: str, identity: Identity) -> bool:
        if "/" in name:
            self._nested.add(name)
        return self._settling.settled(name, identity, time.monotonic())

    def _path(self, name: str) -> Path | None:
        """Give the place of a document; None where it does not lie within the drop folder, or lies on our own shelves."""
        if not is_within(name):
            return None
        path, root = self._folder / name, self._folder.resolve()
        parent = path.parent.resolve()
        shelved = any(parent.is_relative_to(shelf.resolve()) for shelf in self._shelves)
        return path if parent.is_relative_to(root) and not shelved else None


def _problem(where: str, exc: OSError, limit: int) -> Problem:
    match exc:
        case FileNotFoundError():
            return Problem(where, _LATE, "put a report's documents there before the report")
        case TooLargeError():
            what = f"is too large: the documents of one report may have {limit} bytes together"
            return Problem(where, what, "send smaller documents, or raise max_document_bytes of this adapter")
        case NotPlainError():
            return Problem(where, "is no plain file", "put the document itself there")
        case PermissionError():
            return Problem(where, "must not be read", "name a readable file that lies within the folder for results")
        case _:
            raise exc


def _named(message: LabMessage) -> Iterator[tuple[str, Document]]:
    """Give the documents that are named by file, each with its place."""
    if isinstance(message, LabReport):
        yield from ((f"documents[{index}]", one) for index, one in enumerate(message.documents) if one.file is not None)
        for index, observation in enumerate(message.observations):
            attachment = observation.value_attachment
            if attachment is not None and attachment.file is not None:
                yield f"observations[{index}].value_attachment", attachment


def _filled(message: LabMessage, contents: dict[str, bytes]) -> LabMessage:
    if not isinstance(message, LabReport):
        return message

    def fill(document: Document) -> Document:
        if document.file is None:
            return document
        return replace(document, content=contents[document.file], file=None)

    return with_documents(message, fill)


def _is_plain(path: Path) -> bool:
    try:
        identity_of(path)
    except (FileNotFoundError, NotPlainError):
        return False
    return True
