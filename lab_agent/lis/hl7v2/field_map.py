"""The field map: which value belongs into which field, as TOML that a laboratory can override without code.

It is validated against the known placeholders when the settings are loaded, so that a misspelt one becomes the adapter's load
status and not an order without a barcode.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lab_agent.lis.hl7v2.orders.templates import PLACEHOLDERS_BY_GROUP, find_placeholders
from lab_agent.lis.hl7v2.parser import FieldPath, Segment
from lab_agent.lis.hl7v2.results.obx_flags import FLAG_CODES
from lab_agent.settings.sources import deep_merge
from lab_agent.shared.errors import did_you_mean
from lab_agent.shared.validation_errors import issues_from_pydantic

OrderMessageType = Literal["OML", "ORM"]
_SEGMENT_GROUPS = ("once", "line", "note", "answer", "specimen", "container", "end")
_REPORT_STATUSES = frozenset({"registered", "partial", "preliminary", "final", "corrected", "refused", "held"})
_VALUE_TYPES = frozenset({"NM", "SN", "ST", "TX", "FT", "IS", "ID", "CE", "CWE", "CNE", "TM", "DT", "TS", "DTM", "ED", "RP"})
_OBSERVATION_STATUSES = frozenset({"registered", "preliminary", "final", "amended", "stored", "held", "left_out"})
_CANCELLATIONS = frozenset({"refused", "held", ""})
_STATUS_TABLES = {
    "report_status": _REPORT_STATUSES,
    "observation_status": _OBSERVATION_STATUSES,
    "order_control": _CANCELLATIONS,
    "order_status": _CANCELLATIONS,
}


class MessageLayout(BaseModel):
    """The segments of a message, group by group."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str
    once: tuple[str, ...] = ()
    line: tuple[str, ...] = ()
    note: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    specimen: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    end: tuple[str, ...] = ()

    def groups(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """The groups with their segments."""
        return ((group, getattr(self, group)) for group in _SEGMENT_GROUPS)


class IgnoreRule(BaseModel):
    """Messages and groups that are acknowledged and counted, but not read: those with `value` at `path`, in any letters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    value: Annotated[str, Field(min_length=1)]

    @field_validator("path", mode="after")
    @classmethod
    def _validate_path(cls, value: str) -> str:
        if FieldPath.parse(value).segment == "OBX":
            raise ValueError("a rule of results.ignore leaves out whole reports: for single OBX write [[results.leave_out]]")
        return value

    @property
    def field_path(self) -> FieldPath:
        """The path, parsed."""
        return FieldPath.parse(self.path)

    def matches(self, texts: Iterable[str]) -> bool:
        """Whether one of the texts at the path is the value."""
        return self.value.casefold() in map(str.casefold, texts)

    def __str__(self) -> str:
        """The rule as people read it."""
        return f"{self.path} is {self.value}"


class LeaveOutRule(BaseModel):
    """Single OBX that are counted, but not read: those that have all that is given.

    `code` is one of OBX-3, `system` the coding system beside it (or beside any of its codes), `type` OBX-29.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: Annotated[str, Field(min_length=1)] | None = None
    system: Annotated[str, Field(min_length=1)] | None = None
    type: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _validate_any(self) -> LeaveOutRule:
        if not (self.code or self.system or self.type):
            raise ValueError("a rule of results.leave_out needs a code, a system or a type")
        return self

    def matches(self, obx: Segment) -> bool:
        """Whether an OBX is left out by this rule."""
        pairs = [(obx.text(3, first), obx.text(3, first + 2)) for first in (1, 4)]
        is_code = any(self.code in {None, code} and self.system in {None, system} for code, system in pairs if code or system)
        return is_code and self.type in {None, obx.text(29)}

    def __str__(self) -> str:
        """The rule as people read it."""
        given = (("code", self.code), ("system", self.system), ("type", self.type))
        return " and ".join(f"{name} {value}" for name, value in given if value)


class ResultFieldMap(BaseModel):
    """Where the values of a result are found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    line: tuple[str, ...]
    order: tuple[str, ...]
    accession: tuple[str, ...]
    barcode: tuple[str, ...]
    item: tuple[str, ...]
    report_id: tuple[str, ...]
    version: tuple[str, ...]
    status: tuple[str, ...]
    collected: tuple[str, ...]
    issued: tuple[str, ...]
    reject: tuple[str, ...]
    reject_text: tuple[str, ...]
    specimen: tuple[str, ...]
    collect_again: bool
    patient_ids: tuple[str, ...]
    family: tuple[str, ...]
    given: tuple[str, ...]
    birth_date: tuple[str, ...]
    sex: tuple[str, ...]
    decimal_comma: bool
    numeric_text: bool
    empty_value: Literal["skip", "refuse"]
    value_times: Literal["refuse", "note", "ignore"]
    ignore: tuple[IgnoreRule, ...] = ()
    leave_out: tuple[LeaveOutRule, ...] = ()
    quality_control: tuple[IgnoreRule, ...]

    @field_validator("*", mode="after")
    @classmethod
    def _validate_paths(cls, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else ():
            if isinstance(text, str):
                FieldPath.parse(text)
        return value

    @cached_property
    def paths(self) -> Mapping[str, tuple[FieldPath, ...]]:
        """The paths of each value."""
        listed = self.model_dump(exclude={"ignore", "leave_out", "quality_control"})
        return {name: tuple(map(FieldPath.parse, texts)) for name, texts in listed.items() if isinstance(texts, tuple)}

    def find_ignore_rule(self, texts_at: Callable[[FieldPath], Iterable[str]]) -> IgnoreRule | None:
        """The first rule that a message or group fulfils; `texts_at` gives its texts at a path."""
        rules = (*self.ignore, *self.quality_control)
        return next((rule for rule in rules if rule.matches(texts_at(rule.field_path))), None)

    @cached_property
    def segments(self) -> frozenset[str]:
        """The names of the segments in which values are searched."""
        return frozenset(path.segment for paths in self.paths.values() for path in paths)


class FieldMap(BaseModel):
    """The whole map."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    orders: dict[OrderMessageType, MessageLayout]
    cancels: dict[OrderMessageType, MessageLayout]
    fields: dict[str, dict[int, str]]
    results: ResultFieldMap
    tables: dict[str, dict[str, str]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _validate_references(self) -> FieldMap:
        problems = [*self._layout_problems(), *self._template_problems(), *self._status_problems(), *self._value_problems()]
        if problems:
            raise ValueError(f"wrong entries: {'; '.join(problems)}")
        return self

    def table(self, name: str) -> Mapping[str, str]:
        """A lookup table; an empty one if there is none of that name."""
        return self.tables.get(name, {})

    def _layout_problems(self) -> Iterable[str]:
        for layout in (*self.orders.values(), *self.cancels.values()):
            for group, segments in layout.groups():
                yield from (f"{name} in {group} has no table [fields.{name}]" for name in segments if name not in self.fields)
                yield from self._placeholder_problems(group, segments)

    def _placeholder_problems(self, group: str, segments: tuple[str, ...]) -> Iterable[str]:
        """Placeholders that are unknown in their group."""
        for name in segments:
            for field, template in self.fields.get(name, {}).items():
                for placeholder, _ in find_placeholders(template):
                    if placeholder not in PLACEHOLDERS_BY_GROUP[group]:
                        suggestion = did_you_mean(placeholder, PLACEHOLDERS_BY_GROUP[group])
                        yield f"{name}-{field}: unknown placeholder {{{placeholder}}} in {group} {suggestion}".rstrip()

    def _template_problems(self) -> Iterable[str]:
        for name, fields in self.fields.items():
            if not _is_segment_key(name):
                yield f"{name} is not a segment name such as ZLB or NTE.order"
            for field, template in fields.items():
                if field < 1 or field > 200:
                    yield f"{name}-{field} is not a valid field number"
                if any(not char.isprintable() for char in template):
                    yield f"{name}-{field} contains a line end or another control character"
                yield from (
                    f"{name}-{field}: there is no [tables.{table}]"
                    for _, table in find_placeholders(template)
                    if self._is_unknown_table(table)
                )

    def _is_unknown_table(self, table: str | None) -> bool:
        return table is not None and table not in self.tables

    def _status_problems(self) -> Iterable[str]:
        for name, known in _STATUS_TABLES.items():
            for code, meaning in self.table(name).items():
                if meaning not in known:
                    yield f"tables.{name}.{code} is {meaning!r} instead of one of {', '.join(sorted(known))}"

    def _value_problems(self) -> Iterable[str]:
        for code, meaning in self.table("value_types").items():
            if meaning not in _VALUE_TYPES:
                yield f"tables.value_types.{code or '(empty)'} is {meaning!r} instead of one of {', '.join(sorted(_VALUE_TYPES))}"
        for code, meaning in self.table("flags").items():
            if meaning and meaning not in FLAG_CODES:
                yield f"tables.flags.{code} is {meaning!r} instead of a code of HL7 table 0078 (empty: it says nothing)"


_MODELS = (FieldMap, MessageLayout, ResultFieldMap, IgnoreRule, LeaveOutRule)
_KEYS = frozenset(key for model in _MODELS for key in model.model_fields)


def default_field_map() -> FieldMap:
    """The field map that comes with the adapter."""
    return FieldMap.model_validate(_load_default_tables())


def load_field_map(path: Path) -> FieldMap:
    """Load a mapping file that overrides the default map. Raises `ValueError`, naming what is wrong."""
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ValueError(f"the mapping file {path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"the mapping file {path} is not TOML: {exc}") from exc
    try:
        return FieldMap.model_validate(deep_merge(_load_default_tables(), own))
    except ValidationError as exc:
        issues = issues_from_pydantic(exc, _KEYS)
        sentences = (str(issue.to_problem()) if issue.location else issue.what for issue in issues)
        raise ValueError(f"the mapping file {path}: {'; '.join(sentences)}") from exc


def _load_default_tables() -> dict[str, Any]:
    return tomllib.loads(files("lab_agent.lis.hl7v2").joinpath("default.toml").read_text(encoding="utf-8"))


def _is_segment_key(name: str) -> bool:
    code, _, alias = name.partition(".")
    plain = len(code) == 3 and code.isascii() and code.isalnum() and code.isupper()
    return plain and code[0].isalpha() and (alias.replace("_", "").isalnum() or name == code)
