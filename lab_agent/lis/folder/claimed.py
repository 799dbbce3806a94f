"""Which documents a result file names, as far as a file that was refused can be read; and which others name them, too."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab_agent import exact_json
from lab_agent.errors import DataInvalidError
from lab_agent.lis.folder.files import read_regular_file

MAX_SCANNED_FILES = 500
"""So many other files are looked into; where more wait, every document stays where it is."""


def referenced_documents(data: bytes) -> frozenset[str] | None:
    """The documents that a result file names; None where that cannot be told."""
    try:
        tree = exact_json.loads(data.removeprefix(codecs.BOM_UTF8))
    except (DataInvalidError, RecursionError):
        return None
    return frozenset(_document_file_names(tree)) if isinstance(tree, Mapping) else None


def documents_referenced_by(paths: Iterable[Path], limit: int) -> frozenset[str] | None:
    """The documents that any of these files name; None where it cannot be told of all of them. `limit` is in bytes."""
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
