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

from lab_agent.codec.problems import Found, found_by_pydantic, raise_found
from lab_agent.codec.scalars import answer, reader
from lab_agent.domain.values import Coding

T = TypeVar("T")
_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
_ANSWER = bool | int | Decimal | str | Coding


def read_as(target: type[T], tree: dict[str, Any], *, rules: list[Found], time_zone: tzinfo | None = None) -> T:
    """Make a `target` of a JSON object. Raises `DataInvalidError` with what is wrong in shape, and what `rules` found."""
    found, kind = rules, cast("Any", target)
    try:
        value: T = _adapter(kind).validate_python(tree, context={"time_zone": time_zone})
    except ValidationError as exc:
        found = [*found_by_pydantic(exc, _names(kind)), *rules]
    if found:
        raise_found(found)
    return value


@cache
def _adapter(target: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(_wire(target))


def _wire(kind: Any) -> Any:
    """Give the annotation that reads a value of this annotation of the domain."""
    if kind == _ANSWER:
        return answer(_wire(Coding))
    if is_dataclass(kind) and isinstance(kind, type):
        return Annotated[model(kind), AfterValidator(lambda read: _make(kind, read))]
    if get_origin(kind) is tuple:
        return tuple[_wire(get_args(kind)[0]), ...]  # type: ignore[misc]  # made at run time
    if get_origin(kind) in {Union, types.UnionType}:
        (one,) = (arg for arg in get_args(kind) if arg is not types.NoneType)
        return _wire(one) | None
    known = reader(getattr(kind, "__supertype__", kind))
    if known is None:
        raise TypeError(f"the codec knows no way to read {kind}")
    return known


@cache
def model(kind: Any) -> type[BaseModel]:
    """Give the model with the fields of a domain dataclass, the same one each time."""
    hints = get_type_hints(kind)
    members: dict[str, Any] = {one.name: _member(_wire(hints[one.name]), one) for one in fields(kind)}
    return create_model(kind.__name__, __config__=_CONFIG, __doc__=kind.__doc__, **members)


def _member(annotation: Any, one: Field[Any]) -> tuple[Any, Any]:
    """A field with a default may be left out, or be null, which says the same."""
    if one.default is MISSING and one.default_factory is MISSING:
        return annotation, ...
    return annotation | None, ModelField(default=None)


def _make(kind: type[Any], read: BaseModel) -> Any:
    given = ((name, getattr(read, name)) for name in read.model_fields_set)
    return kind(**{name: value for name, value in given if value is not None})


@cache
def _names(kind: Any) -> frozenset[str]:
    """The names of all fields within a domain dataclass."""
    if is_dataclass(kind) and isinstance(kind, type):
        within = (_names(hint) for hint in get_type_hints(kind).values())
        return frozenset({one.name for one in fields(kind)}).union(*within)
    return frozenset().union(*(_names(arg) for arg in get_args(kind) if arg is not Ellipsis))
