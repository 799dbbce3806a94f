"""Files that come with the program beside its code: example settings and tables, translations, systemd units, documentation.

A wheel has them in `lab_agent/share` (see `pyproject.toml`); in a checkout they are where they are edited.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

SHIPPED_FOLDERS = ("config", "docs", "systemd")


def shipped_files_folder() -> Path:
    """The folder that has `SHIPPED_FOLDERS`."""
    package = Path(str(files("lab_agent")))
    share = package / "share"
    return share if share.is_dir() else package.parent


def shipped_path(name: str) -> Path:
    """The path of a file or folder, such as `config/catalogue`."""
    return shipped_files_folder() / name
