"""Reads the domain's values: each frozen dataclass gets a pydantic model of the same fields, made from its own annotations.

The domain stays free of pydantic, there is one list of fields and not two, and pydantic still does the walking, the collecting
of all errors and the JSON Schema.
"""

from __future__ import annotations

import types
from collections.abc import Hashable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import tzinfo
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic import Field as ModelField

from lab_agent.codec.problems import ValidationIssue, issues_from_pydantic, raise_issues
from lab_agent.codec.scalars import answer_annotation, scalar_annotation
from lab_agent.domain.values import Coding

TargetT = TypeVar("TargetT")
_MODEL_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
_ANSWER_TYPE = bool | int | Decimal | str | Coding


def read_as(
    target: type[TargetT], tree: dict[str, Any], *, issues: list[ValidationIssue], time_zone: tzinfo | None = None
) -> TargetT:
    """Make a `target` of a JSON object. Raises `DataInvalidError` with what is wrong in shape, and what `rules` found."""
    found, kind = issues, cast("Any", target)
    try:
        value: TargetT = _type_adapter(kind).validate_python(tree, context={"time_zone": time_zone})
    except ValidationError as exc:
        found = [*issues_from_pydantic(exc, _field_names(kind)), *issues]
    if found:
        raise_issues(found)
    return value


@cache
def _type_adapter(target: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(_annotation_for(target))


def _annotation_for(kind: Any) -> Any:
    """Give the annotation that reads a value of this annotation of the domain."""
    if kind == _ANSWER_TYPE:
        return answer_annotation(_annotation_for(Coding))
    if is_dataclass(kind) and isinstance(kind, type):
        return Annotated[model_for(kind), AfterValidator(lambda read: _build_dataclass(kind, read))]
    if get_origin(kind) is tuple:
        return tuple[_annotation_for(get_args(kind)[0]), ...]  # type: ignore[misc]  # made at run time
    if get_origin(kind) in {Union, types.UnionType}:
        (one,) = (arg for arg in get_args(kind) if arg is not types.NoneType)
        return _annotation_for(one) | None
    known = scalar_annotation(getattr(kind, "__supertype__", kind))
    if known is None:
        raise TypeError(f"the codec knows no way to read {kind}")
    return known


@cache
def model_for(kind: Any) -> type[BaseModel]:
    """Give the model with the fields of a domain dataclass, the same one each time."""
    hints = get_type_hints(kind)
    members: dict[str, Any] = {one.name: _model_field(_annotation_for(hints[one.name]), one) for one in fields(kind)}
    return create_model(kind.__name__, __config__=_MODEL_CONFIG, __doc__=kind.__doc__, **members)


def _model_field(annotation: Any, field: Field[Any]) -> tuple[Any, Any]:
    """A field with a default may be left out, or be null, which says the same."""
    if field.default is MISSING and field.default_factory is MISSING:
        return annotation, ...
    return annotation | None, ModelField(default=None)


def _build_dataclass(kind: type[Any], model: BaseModel) -> Any:
    given = ((name, getattr(model, name)) for name in model.model_fields_set)
    return kind(**{name: value for name, value in given if value is not None})


@cache
def _field_names(kind: Any) -> frozenset[str]:
    """The names of all fields within a domain dataclass."""
    if is_dataclass(kind) and isinstance(kind, type):
        within = (_field_names(hint) for hint in get_type_hints(kind).values())
        return frozenset({one.name for one in fields(kind)}).union(*within)
    return frozenset().union(*(_field_names(arg) for arg in get_args(kind) if arg is not Ellipsis))
