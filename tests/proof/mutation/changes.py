"""The changes that mutation testing makes: mutmut's operators at every place of a module, one change at a time.

mutmut's own runner leaves out decorated functions (all our rules) and what is not within a function (the tables of states), so
only its operators are used. What is left out, since no test of behaviour could tell: types, docstrings, imports, the options of
decorators other than `rule`, and texts for people (literals with white space). The tables of transitions have an operator of
their own: each transition that is there is taken out, each that is not is put in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

from tests.harness.paths import ROOT

_UNCHANGED_CALLS = {"len", "isinstance", "cast", "TypeVar", "NewType", "_parse_transitions"}
_TRANSITIONS = "_parse_transitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: the text of `module` from `start` to `end` becomes `new`.

    `function` is the qualified name of the outermost function around it, or "" outside of all; a change at `definition` (a
    decorator, a default, a constant, a field) takes effect only where the module is imported anew. `lines` is the place.
    """

    module: str
    function: str
    definition: bool
    start: int
    end: int
    new: str
    lines: range
    key: str

    def edit(self) -> str:
        text = file_of(self.module).read_text()
        return text[: self.start] + self.new + text[self.end :]


def file_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def changes_of(module: str) -> list[Change]:
    wrapper = MetadataWrapper(cst.parse_module(file_of(module).read_text()), unsafe_skip_copy=True)
    visitor = _Visitor(module, wrapper)
    wrapper.module.visit(visitor)
    return visitor.changes


class _Visitor(cst.CSTVisitor):
    def __init__(self, module: str, wrapper: MetadataWrapper) -> None:
        self.changes: list[Change] = []
        self._module = module
        self._tree = wrapper.module
        self._text = wrapper.module.code
        self._positions = wrapper.resolve(PositionProvider)
        self._line_starts = [0, *(each.end() for each in re.finditer("\n", self._text))]
        self._names: list[tuple[str, bool]] = []
        """Around the node: names of classes and functions, each with whether it is a function."""
        self._definition = 0
        self._keys: Counter[str] = Counter()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Import | cst.ImportFrom) or _is_unchanged(node):
            self._add_transitions(node)
            return False
        if isinstance(node, cst.Decorator | cst.Param) and not any(is_function for _, is_function in self._names[:-1]):
            self._definition += 1
        if not (isinstance(node, cst.Assign | cst.AnnAssign) and _is_type_alias(node)):
            self._add_operators(node)
        if isinstance(node, cst.ClassDef | cst.FunctionDef):
            self._names.append((node.name.value, isinstance(node, cst.FunctionDef)))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.ClassDef | cst.FunctionDef):
            self._names.pop()
        if isinstance(original_node, cst.Decorator | cst.Param) and not any(function for _, function in self._names[:-1]):
            self._definition = max(0, self._definition - (not _is_unchanged(original_node)))

    def _add_operators(self, node: cst.CSTNode) -> None:
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and not _concerns_text(node):
                for mutated in operator(node):
                    if not (isinstance(node, cst.Call) and _drops_text(node, mutated)):
                        self._add(node, _code(self._tree, mutated))

    def _add(self, node: cst.CSTNode, new: str) -> None:
        place = self._positions[node]
        start, end = self._offset(place.start.line, place.start.column), self._offset(place.end.line, place.end.column)
        self._append(start, end, new, place)

    def _add_transitions(self, node: cst.CSTNode) -> None:
        """Take out each transition of a table, and put in each that is not there."""
        if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == _TRANSITIONS):
            return
        table = node.args[1].value
        place = self._positions[table]
        start, end = self._offset(place.start.line, place.start.column), self._offset(place.end.line, place.end.column)
        rows = re.findall(r"(?m)^ *(\w+) *->(.*)$", self._text[start:end])
        for state, after in rows:
            for other in (name for name, _ in rows if name != state):
                targets = [each for each in after.split() if each != other]
                if len(targets) == len(after.split()):
                    targets.append(other)
                new = re.sub(rf"(?m)^( *{state} *->).*$", rf"\1 {' '.join(targets)}", self._text[start:end])
                self._append(start, end, new, place)

    def _append(self, start: int, end: int, new: str, place: CodeRange) -> None:
        names = [name for name, _ in self._names]
        outermost = next((at for at, (_, is_function) in enumerate(self._names) if is_function), None)
        function = "" if outermost is None else ".".join(names[: outermost + 1])
        key = f"{self._module}:{'.'.join(names) or '-'}: {self._describe(start, end, new)}"
        self._keys[key] += 1
        if self._keys[key] > 1:
            key = f"{key} ({self._keys[key]})"
        self.changes.append(
            Change(
                module=self._module,
                function=function,
                definition=bool(self._definition) or not function,
                start=start,
                end=end,
                new=new,
                lines=range(place.start.line, place.end.line + 1),
                key=key,
            )
        )

    def _describe(self, start: int, end: int, new: str) -> str:
        """`old line -> new line`, of the lines that differ."""
        first = self._text.rfind("\n", 0, start) + 1
        last = self._text.find("\n", end)
        old_lines = self._text[first:last].split("\n")
        new_lines = (self._text[first:start] + new + self._text[end:last]).split("\n")
        while old_lines and new_lines and old_lines[0] == new_lines[0]:
            del old_lines[0], new_lines[0]
        while old_lines and new_lines and old_lines[-1] == new_lines[-1]:
            del old_lines[-1], new_lines[-1]
        return " => ".join(" ".join(" ".join(lines).split()) for lines in (old_lines, new_lines))

    def _offset(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column


def _code(tree: cst.Module, node: cst.CSTNode) -> str:
    """The node's text without the parentheses and white space around it, which stay where they are."""
    if getattr(node, "lpar", None):
        node = node.with_changes(lpar=[], rpar=[])
    return tree.code_for_node(node).strip()


def _is_unchanged(node: cst.CSTNode) -> bool:
    """Whether nothing below it is changed."""
    if isinstance(node, cst.Call):
        return isinstance(node.func, cst.Name) and node.func.value in _UNCHANGED_CALLS
    if isinstance(node, cst.Decorator):
        call = node.decorator
        return not (isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "rule")
    return False


def _is_type_alias(node: cst.Assign | cst.AnnAssign) -> bool:
    """`Outcome = Sent | Refused`, `Rows = Mapping[str, Row]`, `OrderKey = NewType(…)`: types, which mypy holds."""
    target = node.targets[0].target if isinstance(node, cst.Assign) else node.target
    if not isinstance(target, cst.Name) or target.value.isupper() or not target.value.lstrip("_")[:1].isupper():
        return target.value in {"__all__", "__slots__"} if isinstance(target, cst.Name) else False
    return isinstance(node.value, cst.Subscript | cst.BinaryOperation | cst.Call | cst.Name)


def _texts(node: cst.CSTNode | None) -> Iterator[str]:
    """The literal text of a string expression."""
    if isinstance(node, cst.SimpleString):
        yield str(node.evaluated_value) if isinstance(node.evaluated_value, str) else ""
    elif isinstance(node, cst.ConcatenatedString):
        yield from _texts(node.left)
        yield from _texts(node.right)
    elif isinstance(node, cst.FormattedString):
        yield "".join(part.value for part in node.parts if isinstance(part, cst.FormattedStringText))


def _is_text(node: cst.CSTNode | None) -> bool:
    """Whether it is a text for people: a literal with white space between words."""
    return any(re.search(r"\w\W*\s+\W*\w", text) for text in _texts(node))


def _concerns_text(node: cst.CSTNode) -> bool:
    value = node.value if isinstance(node, cst.Assign | cst.AnnAssign) else node
    return _is_text(value)


def _drops_text(call: cst.Call, mutated: cst.CSTNode) -> bool:
    """Whether the change takes a text for people out of the call."""
    if not isinstance(mutated, cst.Call):
        return False
    kept = [each.value for each in mutated.args]
    return any(_is_text(each.value) and not any(each.value is other for other in kept) for each in call.args)
