"""The page of conformance against the suite: its numbers are complete, and every test that it names exists."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tests.harness.paths import ROOT
from tests.harness.stu3_schema import DEVIATIONS
from tests.proof.variants import MUTANTS
from tests.proof.variants_conformance import row_of

PAGE = ROOT / "docs" / "conformance.md"
SECTIONS = (
    "1 What the service does", "2 Resources and their fields", "3 States and transitions", "4 Endpoints", "5 Authentication",
    "6 Events", "7 Errors", "8 Limits", "9 Versioning",
)  # fmt: skip
"""The sections of the interface document, in its order."""
ACTORS = {"laboratory", "service", "partner", "both"}


@dataclass(frozen=True)
class Row:
    section: str
    number: str
    who: str
    asks: str
    does: str
    tests: str


@functools.cache
def page() -> str:
    return PAGE.read_text()


@functools.cache
def rows() -> tuple[Row, ...]:
    found: list[Row] = []
    section = ""
    for line in page().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif re.match(r"\| \d", line):
            found.append(Row(section, *(cell.strip() for cell in line.strip("|").split("|"))))
    return tuple(found)


def test_every_section_is_numbered_without_gaps() -> None:
    found: dict[str, list[str]] = {}
    for row in rows():
        found.setdefault(row.section, []).append(row.number)
    assert tuple(found) == SECTIONS
    for section, numbers in found.items():
        assert numbers == [f"{section.split()[0]}.{n}" for n in range(1, len(numbers) + 1)]


def test_every_row_says_who_what_how_and_names_tests() -> None:
    """Or it says why there is no test of it."""
    incomplete = [row.number for row in rows() if row.who not in ACTORS or not row.asks or not row.does]
    untested = [row.number for row in rows() if not named_tests(row.tests) and not row.tests.startswith("none: ")]
    untidy = [row.number for row in rows() if named_tests(row.tests) and re.sub(r"`[^`]*`|<br>", "", row.tests).strip()]
    assert (incomplete, untested, untidy) == ([], [], [])


def test_named_tests_exist() -> None:
    named: dict[str, set[str]] = {}
    for path, name in (each for row in rows() for each in named_tests(row.tests)):
        named.setdefault(path, set()).add(name)
    assert {path: lacking for path, names in named.items() if (lacking := names - defined_tests(path))} == {}


def test_row_names_the_test_that_finds_its_fault() -> None:
    named = {row.number: row.tests for row in rows()}
    faults = [each for each in MUTANTS if each.found_by == "conformance"]
    assert [fault.name for fault in faults for test in fault.tests if f"`tests/{test}`" not in named.get(row_of(fault), "")] == []


def test_stu3_deviations_are_those_of_the_check() -> None:
    """The page and the check of what we send have one table of deviations."""
    (table,) = re.findall(r"(?ms)^## Deviations from FHIR STU3\n(.*?)^## ", page())
    assert set(re.findall(r"(?m)^\| `([A-Za-z.]+)` \|", table)) == set(DEVIATIONS)


def named_tests(cell: str) -> list[tuple[str, str]]:
    """Path and name of each test in the last cell of a row."""
    return re.findall(r"`([^`:]+)::(\w+)`", cell)


def defined_tests(path: str) -> set[str]:
    """The tests that a file of the suite defines, read without importing it."""
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))
