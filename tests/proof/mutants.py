"""Known-bad variants of the programs: a proof that stays green with one of them proves nothing.

A variant is one edit of one file, made in a copy of the tree; the copy's tests run against the copy's programs.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.harness.paths import ROOT

SHARE_OF_VARIANTS = 0.02
_PARTS = (
    *("lab_agent", "lab_api", "lab_sandbox", "tests", "config", "docs", "systemd", "tools", "requirements"),
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Dockerfile", ".dockerignore", "compose.yaml"),
)
_ENTRY = re.compile(r"(\S+): (.+)\n((?: {4}.*\n)+)((?:  [-+].*\n)+)\n?")


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


def read_variants(text: str) -> tuple[Mutant, ...]:
    """Read variants that are written down by the proof that must find them, as here.

    == proof [share of the full length]
    name: what it does wrong
        file test
      - its text
      + the text of the variant; without such a line, the lines go

    """
    return tuple(_parse_variants(text))


def _parse_variants(text: str) -> Iterator[Mutant]:
    for section in re.split("^== ", text, flags=re.MULTILINE)[1:]:
        heading, _, rest = section.partition("\n")
        proof, _, share = heading.partition(" ")
        for entry in re.split(r"^(?=\S)", rest, flags=re.MULTILINE)[1:]:
            if (found := _ENTRY.fullmatch(entry)) is None:
                raise ValueError(f"this is no variant:\n{entry}")
            name, what, places, edit = found.groups()
            file, test = " ".join(places.split()).split(" ", 1)
            old, new = ([line[4:] for line in edit.splitlines() if line[2] == sign] for sign in "-+")
            yield Mutant(
                name=name,
                what=what,
                file=file,
                old="\n".join(old) if new else "".join(f"{line}\n" for line in old),
                new="\n".join(new),
                found_by=proof,
                tests=(test,),
                share=float(share or SHARE_OF_VARIANTS),
            )


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
