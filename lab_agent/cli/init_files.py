"""The files that a new settings file names: made from what comes with the program, where there are none yet.

Units and the catalogue are copied whole. Tables of the laboratory's own codes begin with their heading alone, and the HL7 v2 map
with comments alone: an example's code would go to a clinic as if it were the laboratory's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab_agent.errors import Problem, SettingsError
from lab_agent.shipped_files import shipped_path


def create_catalogue(target: Path) -> None:
    """Make a folder with the sample catalogue, unless something is there."""
    _create_folder(target, {file.name: file.read_bytes() for file in shipped_path("config/catalogue").glob("*.csv")})


def create_mappings(target: Path) -> None:
    """Make a folder with the table of units and empty tables of codes and answers, unless something is there."""
    tables = {file.name: file.read_bytes() for file in shipped_path("config/mappings").glob("*.csv")}
    headings = {name: content.splitlines(keepends=True)[0] for name, content in tables.items() if name != "units.csv"}
    _create_folder(target, tables | headings)


def create_hl7v2_map(target: Path) -> None:
    """Make a map that changes nothing: the example with every line as a comment. A map that is there is kept."""
    lines = shipped_path("config/hl7v2/mapping.toml").read_text(encoding="utf-8").splitlines()
    text = "\n".join(f"# {line}" if line and not line.startswith("#") else line for line in lines)
    with _explained(target):
        if not target.exists():
            target.write_text(f"{text}\n", encoding="utf-8")


def create_folder(target: Path) -> None:
    """Make an empty folder, unless it is there."""
    with _explained(target):
        target.mkdir(parents=True, exist_ok=True)


def _create_folder(target: Path, files: Mapping[str, bytes]) -> None:
    with _explained(target):
        if target.exists():
            return
        target.mkdir(parents=True)
        for name, content in files.items():
            (target / name).write_bytes(content)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        hint = "the settings file was written; correct this, and create what is missing"
        raise SettingsError((Problem(str(target), f"cannot be written: {exc.strerror}", hint),)) from exc
