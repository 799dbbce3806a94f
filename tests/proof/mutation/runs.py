"""Trying changes: each in a forked process of a pytest that has everything imported already.

A change within a function is put into the function that is there. Any other takes effect only when its module is imported, so it
is tried in a fork of a pytest that has not collected its tests yet. A process that takes too long is ended, and its change counts
as found: one that loops for ever does not go unnoticed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import groupby
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.harness.proof import FIGURES
from tests.proof.mutation.changes import Change, file_of
from tests.proof.mutation.executed_lines import LineRecorder, TestChoice, code_of, independent_modules

FOUND, SURVIVED, UNTESTED = "found", "survived", "untested"
_FOUND, _SURVIVED = 0, 10
"""Exit codes of a forked process; another one is a fault of this runner."""
_CPU_SECONDS = 20
_MEMORY = 6 * 2**30
_EACH = 7
"""Of the tests, one of so many is run in a fork without a change, where it has to pass."""


_CACHED = type(cache(len))


class Outcomes:
    """A file of lines, `{"key": …, "outcome": …}`."""

    def __init__(self, file: Path, total: int) -> None:
        self._file = file
        self._total = total

    def read(self) -> dict[str, str]:
        """The outcome of each change by its key."""
        lines = self._file.read_text().splitlines() if self._file.exists() else ()
        return {each["key"]: each["outcome"] for each in map(json.loads, lines)}

    def add(self, change: Change, outcome: str) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps({"key": change.key, "outcome": outcome}) + "\n")

    def progress(self, done: int) -> None:
        FIGURES.progress(done, self._total)


class FunctionChanges:
    """A plug-in that tries the changes within functions, instead of running the tests; it leaves the others, with their tests."""

    def __init__(self, changes: Sequence[Change], tests: Sequence[str], outcomes: Outcomes) -> None:
        self._changes = changes
        self._tests = tests
        self._outcomes = outcomes
        self._recorder = LineRecorder({each.module for each in changes})
        self.left: list[tuple[Change, list[str]]] = []
        self.known: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Any:
        """Note what runs when modules are imported."""
        session.config.args = list(self._tests)  # only now, so that no conftest of theirs was imported before
        with self._recorder as lines:
            result = yield
        self._imported = set(lines)
        return result

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each test once to learn what it runs, then try the changes."""
        tests = {each.nodeid: each for each in session.items}
        self.known = set(tests)
        following = [*session.items[1:], session.items[0]]  # what is set up for all tests stays, also for the forks
        lines_of_tests = {item.nodeid: self._record(item, after) for item, after in zip(session.items, following, strict=True)}
        choice = TestChoice(lines_of_tests, self._imported, {name: str(item.path) for name, item in tests.items()})
        if _try_forked(lambda: _any_fails(session.items[::-_EACH])) != SURVIVED:
            raise pytest.UsageError("tests fail in a fork without any change")
        functions = _functions_by_place()
        _clear_caches()
        gc.collect()
        gc.freeze()
        for number, change in enumerate(self._changes):
            self._outcomes.progress(number)
            self._try(change, choice, functions, tests)
        return True

    def _record(self, item: pytest.Item, following: pytest.Item) -> set[tuple[str, int]]:
        with self._recorder as lines:
            failed = _fails(item, following)
        if failed:
            raise pytest.UsageError(f"{item.nodeid} fails without any change")
        return set(lines)

    def _try(self, change: Change, choice: TestChoice, functions: Any, tests: dict[str, pytest.Item]) -> None:
        old = None if change.definition else code_of(_compiled(change.module), change.function)
        there = functions.get((str(file_of(change.module)), change.function), [])
        new = old and code_of(compile(change.edit(), old.co_filename, "exec", dont_inherit=True), change.function)
        outcome = None
        if old is not None and new is not None and there and new.co_freevars == old.co_freevars:
            chosen = choice.within_function(change, _lines_of(old))
            outcome = _try_forked(lambda: _fails_with(there, new, [tests[each] for each in chosen])) if chosen else UNTESTED
        if outcome is None or (outcome != FOUND and choice.runs_at_import(change)):
            self.left.append((change, choice.at_definition(change.module)))
        else:
            self._outcomes.add(change, outcome)


def _fails_with(functions: Sequence[FunctionType], code: CodeType, items: Sequence[pytest.Item]) -> bool:
    for function in functions:
        function.__code__ = code
    return _any_fails(items)


class DefinitionChanges:
    """A plug-in that tries the changes that take effect by an import: it forks before the tests are collected."""

    def __init__(self, left: Iterable[tuple[Change, list[str]]], known: Collection[str], outcomes: Outcomes, done: int) -> None:
        self._left = left
        self._known = known
        self._outcomes = outcomes
        self._done = done

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Try them, module by module; nothing is collected here."""
        for module, group in groupby(self._left, lambda each: each[0].module):
            of_module, first = list(group), independent_modules(module)
            run_forked(partial(self._try_module, session, first, of_module))
            self._done += len(of_module)
        return True

    def _try_module(self, session: pytest.Session, first: Sequence[str], group: Sequence[tuple[Change, list[str]]]) -> None:
        for each in first:
            importlib.import_module(each)
        if (module := group[0][0].module) in sys.modules:
            raise RuntimeError(f"{module} was imported too early for a change of it")
        gc.collect()
        gc.freeze()
        for number, (change, tests) in enumerate(group, self._done):
            self._outcomes.progress(number)
            self._outcomes.add(
                change, _try_forked(partial(self._fails_imported_anew, session, change, tests)) if tests else UNTESTED
            )

    def _fails_imported_anew(self, session: pytest.Session, change: Change, tests: Sequence[str]) -> bool:
        sys.meta_path.insert(0, _ChangedModule(change))
        for file in dict.fromkeys(each.partition("::")[0] for each in tests):  # file by file: mostly the first one finds it
            session.config.args = [file]
            try:
                items = {each.nodeid: each for each in session.perform_collect()}
            except Exception:  # noqa: BLE001 - whatever an import with the change raises has found it
                return True
            renamed = [name for name in items if name not in self._known]  # a parameter is another one with the change
            if session.testsfailed or _any_fails([items[each] for each in [*tests, *renamed] if each in items]):
                return True
        return False


class _ChangedModule(MetaPathFinder):
    """Finds one module with its change."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != self._change.module:
            return None
        file = str(file_of(fullname))
        return spec_from_file_location(fullname, file, loader=_ChangedLoader(fullname, file, self._change.edit()))


class _ChangedLoader(SourceFileLoader):
    """Loads a given text, past the compiled file."""

    def __init__(self, name: str, file: str, text: str) -> None:
        super().__init__(name, file)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


def run_forked(act: Callable[[], None]) -> None:
    """Do something in a process of its own, so that what it imports stays there. Raises `RuntimeError` if it fails."""
    pid = os.fork()
    if not pid:
        try:
            act()
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("what was forked failed: see above")


def _try_forked(fails: Callable[[], bool]) -> str:
    """Run it in a fork; what ends it (too much time or memory, a crash) has found the change."""
    pid = os.fork()
    if not pid:
        _limit()
        os._exit(_FOUND if fails() else _SURVIVED)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return FOUND
    return {_FOUND: FOUND, _SURVIVED: SURVIVED}[os.WEXITSTATUS(status)]


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _any_fails(items: Sequence[pytest.Item]) -> bool:
    if items:
        items[0].session._setupstate.teardown_exact(items[0])  # of what was set up before, what this one shares stays
    return any(_fails(item, following) for item, following in zip(items, [*items[1:], None], strict=True))


def _fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _functions_by_place() -> dict[tuple[str, str], list[FunctionType]]:
    """All functions that there are, by file and qualified name; decorators keep the one that they wrap."""
    result: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            result[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    return result


def _clear_caches() -> None:
    """Forget what functions have kept of the run without changes: a change in one of them would not be run."""
    for each in gc.get_objects():
        if isinstance(each, _CACHED) and each is not _compiled:
            each.cache_clear()


@cache
def _compiled(module: str) -> CodeType:
    return compile(file_of(module).read_text(), str(file_of(module)), "exec", dont_inherit=True)


def _lines_of(code: CodeType) -> range:
    numbers = [line for _, _, line in code.co_lines() if line]
    for each in code.co_consts:
        if isinstance(each, CodeType):
            numbers += _lines_of(each)
    return range(min(numbers), max(numbers) + 1)
