"""Files that are written all at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lab_agent.shared.atomic_file import rewrite_atomically, temporary_file, write_atomically


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


def test_rewritten_file_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "map.toml", tmp_path / "link.toml"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    rewrite_atomically(link, b"new")
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o640)
    rewrite_atomically(tmp_path / "new.toml", b"x", 0o600)
    assert (tmp_path / "new.toml").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.toml", "map.toml", "new.toml"]


def test_rewritten_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "map.toml"
    file.write_text("old")
    if os.geteuid():
        pytest.skip("only root may give a file to somebody else")
    os.chown(file, 1234, 1235)
    rewrite_atomically(file, b"new")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1235)
