"""Known-bad variants of the programs: a proof that stays green with one of them proves nothing.

A variant is one edit of one file, made in a copy of the tree; the copy's tests run against the copy's programs.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.harness.paths import ROOT

SHARE_OF_VARIANTS = 0.02
_PARTS = (
    "lab_agent",
    "lab_api",
    "lab_sandbox",
    "tests",
    "config",
    "docs",
    "systemd",
    "tools",
    "requirements",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "Dockerfile",
    ".dockerignore",
    "compose.yaml",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A variant that does `what` is wrong: in `file`, the text `old`, which is there once, becomes `new`.

    `found_by` is the name of the proof, and `tests` are those of its tests (with `::name`, or whole files) of which one must fail
    within such a share of their full length.
    """

    name: str
    what: str
    file: str
    old: str
    new: str
    found_by: str
    tests: tuple[str, ...]
    share: float = SHARE_OF_VARIANTS

    def edit(self) -> str:
        """The text of the file with the edit. Raises `StaleMutantError` where the programs have moved on."""
        text = (ROOT / self.file).read_text()
        if (times := text.count(self.old)) != 1:
            raise StaleMutantError(f"mutant {self.name}: its text is {times} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def make_tree(folder: Path, mutant: Mutant | None = None) -> None:
    """Make the tree anew, of hard links on the same disk, but for the file that the variant edits. Raises `StaleMutantError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part in _PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, copy_function=_link_or_copy)
        elif source.exists():
            _link_or_copy(source, folder / part)
    if mutant is not None:
        edited = mutant.edit()
        target = folder / mutant.file
        target.unlink()  # the other name of the file keeps its text
        target.write_text(edited)


def _link_or_copy(source: Path | str, target: Path | str) -> None:
    try:
        os.link(source, target)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)


class StaleMutantError(Exception):
    """The text that a variant edits is not there any more: the variant is written anew."""
