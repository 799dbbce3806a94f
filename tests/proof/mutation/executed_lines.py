"""Which lines of the changed modules each test executes, and so which tests are tried with a change, in which order."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.harness.decisions import GROUPS, modules_in
from tests.harness.paths import ROOT
from tests.proof.mutation.changes import Change, file_of

Line = tuple[str, int]
MOST_TESTS = 300
"""Tests that are tried with a change; what none of so many different ones finds, hardly any other does."""
_PURE = (
    *(name for group in GROUPS.values() for name in group),
    *(name for each in ("shared.conditions", "catalogue.spreadsheet", "fhir") for name in modules_in(f"lab_agent.{each}")),
)


class LineRecorder:
    """Notes the lines of `modules` that run while it is on."""

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = {str(file_of(each)): each for each in modules}
        self._seen: set[Line] = set()

    def __enter__(self) -> set[Line]:
        self._seen = set()
        sys.settrace(self._trace_call)
        return self._seen

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace_call(self, frame: FrameType, _event: str, _value: Any) -> Any:
        return self._trace_line if frame.f_code.co_filename in self._modules else None

    def _trace_line(self, frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line":
            self._seen.add((self._modules[frame.f_code.co_filename], frame.f_lineno))
        return self._trace_line


class TestChoice:
    """The tests to try with a change: those that run its lines, different ones first."""

    def __init__(self, lines_of_tests: dict[str, set[Line]], lines_of_imports: set[Line], files: dict[str, str]) -> None:
        """`files`: of each test, its file, in the order in which tests run; `lines_of_imports` ran before the first of them."""
        self._lines_of_tests = lines_of_tests
        self._imported = lines_of_imports
        self._importers = _importers(set(files.values()))
        self._files = files
        self._at_definition: dict[str, list[str]] = {}
        self._by_module: dict[str, dict[str, frozenset[int]]] = defaultdict(dict)
        for test, lines in lines_of_tests.items():
            for module in {module for module, _ in lines}:
                self._by_module[module][test] = frozenset(number for where, number in lines if where == module)

    def runs_at_import(self, change: Change) -> bool:
        """Whether its lines run when modules are imported, so that it must be there by then."""
        return any((change.module, line) in self._imported for line in change.lines)

    def within_function(self, change: Change, function_lines: range) -> list[str]:
        """The tests that run its lines."""
        tests = self._by_module[change.module]
        there = {test: lines.intersection(function_lines) for test, lines in tests.items() if not lines.isdisjoint(change.lines)}
        own = [test for test in there if self._is_own(test, change.module)]
        return list(dict.fromkeys([*own[: MOST_TESTS // 2], *_different_first(there, self._rank)]))[:MOST_TESTS]

    def at_definition(self, module: str) -> list[str]:
        """The tests of files that import the module, and those that run it; else those that run a module that imports it."""
        if module not in self._at_definition:
            direct = [test for test, file in self._files.items() if {module, _OF_EVERY_MODULE} & self._importers[file]]
            direct.sort(key=lambda test: not self._is_own(test, module))
            near = _different_first(self._by_module[module], self._rank)
            self._at_definition[module] = list(dict.fromkeys([*direct, *islice(near, MOST_TESTS)])) or list(
                self._of_importers(module)
            )
        return self._at_definition[module]

    def _is_own(self, test: str, module: str) -> bool:
        return self._files[test].endswith(f"/test_{module.rpartition('.')[2]}.py")

    def _of_importers(self, module: str) -> Iterator[str]:
        users = {name for name in self._by_module if module in _imports_of(file_of(name).read_text())}
        kinds = {test: frozenset(name for name in users if test in self._by_module[name]) for test in self._files}
        return _different_first({test: kind for test, kind in kinds.items() if kind}, self._rank)

    def _rank(self, test: str) -> int:
        """How much it runs: a test of little is quick and tells more."""
        return len(self._lines_of_tests[test])


def _different_first(tests: Mapping[str, frozenset[Any]], rank: Callable[[str], int]) -> Iterator[str]:
    """One test of each kind (those that run the same lines), then a second of each, and so on."""
    kinds: dict[frozenset[Any], list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda each: (rank(each), each)):
        kinds[tests[test]].append(test)
    for turn in zip_longest(*kinds.values()):
        yield from (each for each in turn if each is not None)


_OF_EVERY_MODULE = "tests.harness.field_defaults"
"""What a file of tests imports that asks the definitions of all modules of a package."""


def _importers(files: Iterable[str]) -> dict[str, set[str]]:
    return {file: _imports_of(Path(file).read_text()) for file in files}


def _imports_of(source: str) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
    return found


def independent_modules(module: str) -> list[str]:
    """The modules of the agent's pure packages that do not need this one, directly or by others."""
    dependent, found = {module}, [module]
    while found:
        new = _needed_by()[found.pop()] - dependent
        dependent |= new
        found += new
    return [name for name in dict.fromkeys(_PURE) if name not in dependent]


@cache
def _needed_by() -> dict[str, set[str]]:
    """Of each module of the agent, those that import it."""
    needed_by: dict[str, set[str]] = defaultdict(set)
    for file in (ROOT / "lab_agent").rglob("*.py"):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for each in _imports_of(file.read_text()):
            needed_by[each].add(name)
    return needed_by


def code_of(module: CodeType, function: str) -> CodeType | None:
    """The code of a function or method by its qualified name, from the compiled module; None if it is not there once."""
    found = [each for each in _codes(module) if each.co_qualname == function]
    return found[0] if len(found) == 1 else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)
