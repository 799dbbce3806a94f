"""Whatever the file: what comes out of loading is a catalogue or a `CatalogueError`."""

from __future__ import annotations

import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.catalogue.spreadsheet.schema import SheetTable
from lab_agent.catalogue.spreadsheet.xlsx_writer import write_workbook
from lab_agent.shared.errors import CatalogueError
from tests.harness.paths import CATALOGUE

pytestmark = pytest.mark.slow
FILES = 120
_ODD_NUMBERS = ("-1", "99999", "0", "1e400", "4.8e30", "nan", "9" * 5000, "999999999999", "x", "")
_ODD_TEXTS = ("\x0b", "\x00", "\u2028", "９", "\ufeff", '"', ";", "\r", "-", "1e5", "9" * 5000, "0001-01-01T00:00+14:00", "\x85")


def damage(text: str, rng: random.Random) -> str:
    """The XML, with one thing wrong."""
    kinds: tuple[Callable[[], str], ...] = (
        lambda: _swap(text, r'(?<=[a-zA-Z]=")[^"]*(?=")', rng, _ODD_NUMBERS),
        lambda: _swap(text, r"(?<=<v>)[^<]*(?=</v>)", rng, _ODD_NUMBERS),
        lambda: _swap(text, r' [a-zA-Z:]+(?==")', rng, (" r", " odd", " t", " s", " count")),
        lambda: _swap(text, r'(?<= t=")[a-zA-Z]+(?=")', rng, ("s", "d", "e", "b", "n", "str", "inlineStr", "z")),
        lambda: _swap(text, r"(?<=<)[a-zA-Z]+(?=[ />])", rng, ("f", "v", "c", "row", "is", "odd")),
        lambda: _swap(text, r"<[^>]*/>", rng, ("",)),
        lambda: _cut(text, rng),
    )
    return rng.choice(kinds)()


def _swap(text: str, pattern: str, rng: random.Random, by: tuple[str, ...]) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return _cut(text, rng)
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(by) + text[one.end() :]


def _cut(text: str, rng: random.Random) -> str:
    start = rng.randrange(len(text) + 1)
    return text[:start] + text[start + rng.randint(1, 20) :]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The parts of a small workbook that is valid as to its form."""
    path = tmp_path_factory.mktemp("fuzz") / "small.xlsx"
    write_workbook(path, {name: SheetTable(name, table.rows[:2]) for name, table in csv_files.read_tables(CATALOGUE).items()})
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def loads_or_says_why(source: Path) -> None:
    try:
        csv_files.load_catalogue(source)
    except CatalogueError as exc:
        assert exc.problems  # noqa: PT017 - that nothing else is raised is the test


def test_damaged_workbook_rejected_with_reason(parts: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "damaged.xlsx"
    names = [
        name for name in parts if re.search(r"worksheets/sheet\d+\.xml$|styles|workbook\.xml|rels$|Types|sharedStrings", name)
    ]
    for seed in range(FILES):
        rng = random.Random(seed)
        broken = rng.choice(names)
        with zipfile.ZipFile(path, "w") as file:
            for name, content in parts.items():
                text = damage(content.decode(), rng).encode() if name == broken else content
                file.writestr(name, text)
        loads_or_says_why(path)


def test_damaged_bytes_rejected_with_reason(parts: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "damaged.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    whole = path.read_bytes()
    for seed in range(FILES):
        rng, content = random.Random(seed), bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        loads_or_says_why(path)


def test_damaged_csv_rejected_with_reason(folder: Path) -> None:
    for path in sorted(folder.glob("*.csv")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    whole = {path: path.read_text() for path in sorted(folder.glob("*.csv"))}
    for seed in range(FILES):
        rng = random.Random(seed)
        path = rng.choice(list(whole))
        text = whole[path]
        for _ in range(rng.randint(1, 3)):
            cells = list(re.finditer(r"[^,\n]+", text))
            cell = rng.choice(cells)
            text = text[: cell.start()] + rng.choice(_ODD_TEXTS) + text[cell.end() :]
        path.write_text(text)
        loads_or_says_why(folder)
        path.write_text(whole[path])
