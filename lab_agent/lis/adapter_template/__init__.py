"""Generates a new adapter's project: it installs and passes the contract suite before a line of it was changed.

The folder `project` holds its files as templates, with placeholders in «guillemets».
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path

from lab_agent.shared.errors import Problem, SettingsError

TEMPLATE_FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "readme.md.txt": "README.md",
    "adapter.py.txt": "{module}/__init__.py",
    "test_adapter.py.txt": "tests/test_{module}.py",
    "fake_lis.py.txt": "tests/fake_lis.py",
}
"""The template files and their target paths."""


def create_project(name: str, parent: Path) -> tuple[Path, ...]:
    """Write the project `name` into a new folder in `parent`; returns its files. Raises `SettingsError`; overwrites nothing."""
    values = _placeholders(name)
    folder = parent / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as exc:
        raise SettingsError((Problem(str(folder), "already exists", "choose another name or another folder"),)) from exc
    return tuple(_render_file(folder, source, target.format(**values), values) for source, target in TEMPLATE_FILES.items())


def _placeholders(name: str) -> dict[str, str]:
    module = f"lab_adapter_{name.replace('-', '_')}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(name) or len(name) > 40:
        hint = "use lower-case letters, digits and single hyphens, such as my-lis"
        raise SettingsError((Problem("NAME", "is not a valid adapter name", hint),))
    return {"name": name, "module": module, "class": "".join(map(str.capitalize, name.split("-")))}


def _render_file(folder: Path, source: str, target: str, placeholders: dict[str, str]) -> Path:
    text = (files(__name__) / "project" / source).read_text(encoding="utf-8")
    for word, value in placeholders.items():
        text = text.replace(f"«{word}»", value)
    path = folder / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
