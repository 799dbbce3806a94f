"""File names: which are temporary, which are safe, and how a hostile one is written down."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

_TEMPORARY = (".part", ".tmp", ".temp", ".filepart", ".crdownload", "~")
_LONGEST = 200


def is_temporary(name: str) -> bool:
    """Whether a file of this name is still being written, or is nobody's business."""
    return name.startswith(".") or name.lower().endswith(_TEMPORARY)


def is_message(name: str) -> bool:
    """Whether a file of this name is a report or a refusal."""
    return name.lower().endswith(".json") and not is_temporary(name)


def is_within(name: str) -> bool:
    """Whether a name that a report gives leads to a file within the folder, by its spelling alone."""
    parts = name.split("/")
    plain = name.isprintable() and not {"\\", ":"} & set(name)
    return plain and not PurePosixPath(name).is_absolute() and not any(part.startswith(".") or not part for part in parts)


def written(name: str) -> str:
    """Write a file name so that any log, page or database takes it."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"


def is_key(key: str) -> bool:
    """Whether a key can be part of a file name."""
    return 0 < len(key) <= 64 and key.isascii() and key.replace("-", "").replace("_", "").isalnum()
