"""Files that are written all at once."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lab_agent.atomic_file import temporary_file, write_atomically


def test_write_replaces_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old", 0o644)
    write_atomically(path, b"new", 0o640)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), temporary_file(path, b"new"):
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_file_is_private_and_hidden(tmp_path: Path) -> None:
    with temporary_file(tmp_path / "a.json", b"data") as temporary:
        assert temporary.read_bytes() == b"data"
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        assert temporary.name.startswith(".")
    assert list(tmp_path.iterdir()) == []
