"""A new adapter's project, small and whole: it installs, and it passes the contract suite before a line of it was changed.

The files lie in the folder `project` with the names still open in them.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path

from lab_agent.errors import Problem, SettingsError

TEMPLATE_FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "readme.md.txt": "README.md",
    "adapter.py.txt": "{module}/__init__.py",
    "test_adapter.py.txt": "tests/test_{module}.py",
}
"""The files of the kit, and where they go."""


def create_project(name: str, parent: Path) -> tuple[Path, ...]:
    """Write the project `name` into a new folder of `parent`; gives the files. Raises `SettingsError`; overwrites nothing."""
    words = _placeholders(name)
    folder = parent / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as exc:
        raise SettingsError((Problem(str(folder), "is there already", "take another name, or another place"),)) from exc
    return tuple(_render_file(folder, source, target.format(**words), words) for source, target in TEMPLATE_FILES.items())


def _placeholders(name: str) -> dict[str, str]:
    module = f"lab_adapter_{name.replace('-', '_')}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(name) or len(name) > 40:
        mend = "take lower-case letters, digits and single hyphens, such as my-lis"
        raise SettingsError((Problem("NAME", "cannot be the name of an adapter", mend),))
    return {"name": name, "module": module, "class": "".join(map(str.capitalize, name.split("-")))}


def _render_file(folder: Path, source: str, target: str, placeholders: dict[str, str]) -> Path:
    text = (files(__name__) / "project" / source).read_text(encoding="utf-8")
    for word, value in placeholders.items():
        text = text.replace(f"«{word}»", value)
    path = folder / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
