"""File names: which are temporary, which are safe, and how a hostile one is written down."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

_TEMPORARY_SUFFIXES = (".part", ".tmp", ".temp", ".filepart", ".crdownload", "~")
_MAX_SHOWN_LENGTH = 200
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def is_temporary(name: str) -> bool:
    """Whether a file of this name is still being written, or is nobody's business."""
    return name.startswith(".") or name.lower().endswith(_TEMPORARY_SUFFIXES)


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a file of this name is meant by a pattern such as `RES_*.json`, in any case."""
    return fnmatchcase(name.lower(), pattern.lower()) and not is_temporary(name)


def format_file_name(pattern: str, values: Mapping[str, str]) -> str:
    """Give the name that a pattern means; what others wrote is made harmless, and the key (which is ours) makes it single."""
    name = pattern
    for word, value in values.items():
        name = name.replace(f"{{{word}}}", _UNSAFE_CHARACTER.sub("_", value)[:60] or "_")
    return name


def is_safe_relative_path(name: str) -> bool:
    """Whether a name that a report gives leads to a file within the folder, by its spelling alone."""
    parts = name.split("/")
    plain = name.isprintable() and not {"\\", ":"} & set(name)
    return plain and not PurePosixPath(name).is_absolute() and not any(part.startswith(".") or not part for part in parts)


def printable_name(name: str) -> str:
    """Write a file name so that any log, page or database takes it."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= _MAX_SHOWN_LENGTH else shown[:_MAX_SHOWN_LENGTH] + "…"


def is_safe_key(key: str) -> bool:
    """Whether a key can be part of a file name."""
    return 0 < len(key) <= 64 and key.isascii() and key.replace("-", "").replace("_", "").isalnum()
