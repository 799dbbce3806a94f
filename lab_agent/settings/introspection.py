"""The settings models walked as a tree, for errors and for the documentation; and the values for people, with secrets masked.

Adapter tables are raw, so a secret in them is recognised by its key; passwords inside addresses are masked wherever they are.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

NAME_PLACEHOLDER = "<name>"
"""Stands for a table name of the operator's choice, as in `exchange.contracts.<name>`."""
ARRAY_SUFFIX = "[]"
"""Ends the path of a table that may be repeated (`[[api.tokens]]`)."""
BASIC = "basic"
"""In a field's metadata: most installations set this key. All others are for experts."""
MASK = "***"
_SECRET_NAME = re.compile(r"password|passwd|secret|token|(^|_)keys?$|hash|sha256|credential", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key: its table (`exchange.oauth`), its name in it, and the field that describes it."""

    table: str
    name: str
    field: FieldInfo

    @property
    def path(self) -> str:
        """The dotted key."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def is_basic(self) -> bool:
        """Whether most installations set it."""
        return BASIC in self.field.metadata


def iter_keys(model: type[BaseModel], table: str = "") -> Iterator[SettingKey]:
    """Give every key below `model`, a table's own keys before its sub-tables."""
    keys = [SettingKey(table, name, field) for name, field in model.model_fields.items()]
    yield from (key for key in keys if not _nested_tables(key))
    for key in keys:
        for path, inner in _nested_tables(key):
            yield from iter_keys(inner, path)


def iter_tables(model: type[BaseModel], table: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Give every table below `model` with its path, in the order of `iter_keys`."""
    for name, field in model.model_fields.items():
        for path, inner in _nested_tables(SettingKey(table, name, field)):
            yield path, inner
            yield from iter_tables(inner, path)


def resolve_location(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | FieldInfo | None:
    """Give what is at a location of the tree: a table's model, a key's field, or None."""
    found: type[BaseModel] | FieldInfo | None = model
    rest = list(location)
    while rest:
        if not isinstance(found, type):
            return found
        field = found.model_fields.get(str(rest.pop(0)))
        if field is None:
            return None
        inner = _models_in(field.annotation)
        found = inner[0] if inner else field
        if inner and rest and (is_mapping(field.annotation) or is_list(field.annotation)):
            rest.pop(0)
    return found


def is_mapping(annotation: Any) -> bool:
    """Whether a key holds tables with names of the operator's choice."""
    return any(get_origin(part) in {dict, Mapping} or part is dict for part in _union_members(annotation))


def is_list(annotation: Any) -> bool:
    """Whether a key holds a list."""
    return any(get_origin(part) in {list, tuple, set, frozenset} for part in _union_members(annotation))


def _nested_tables(key: SettingKey) -> list[tuple[str, type[BaseModel]]]:
    path = key.path
    if is_mapping(key.field.annotation):
        path += f".{NAME_PLACEHOLDER}"
    elif is_list(key.field.annotation):
        path += ARRAY_SUFFIX
    return [(path, model) for model in _models_in(key.field.annotation)]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _union_members(annotation: Any) -> list[Any]:
    """The members of a union, `Annotated` taken off."""
    if get_origin(annotation) is Annotated:
        return _union_members(get_args(annotation)[0])
    if get_origin(annotation) in {Union, types.UnionType}:
        return [plain for part in get_args(annotation) for plain in _union_members(part)]
    return [annotation]


def mask_secrets(settings: BaseModel) -> dict[str, Any]:
    """Give all values as plain data, secrets masked."""
    return {name: _mask_value(name, value) for name, value in settings.model_dump().items()}


def iter_masked_values(settings: BaseModel) -> Iterator[tuple[str, str]]:
    """Give every dotted key with its masked value as text."""
    yield from _flatten("", mask_secrets(settings))


def iter_plain_values(settings: BaseModel) -> Iterator[tuple[str, str]]:
    """Give every dotted key with its value as text, secrets as they are: for digests alone, never to be shown or stored."""
    yield from _flatten("", _reveal(settings.model_dump()))


def _reveal(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _reveal(item) for key, item in value.items()}
    return [_reveal(item) for item in value] if isinstance(value, list | tuple) else value


def is_secret_name(name: str) -> bool:
    """Whether a key is named like one that holds a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_url_password(text: str) -> str:
    """Replace the password in an address."""
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", text)


def _mask_value(name: str, value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Mapping):
        return {key: _mask_value(str(key), item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_mask_value(name, item) for item in value]
    if is_secret_name(name) and isinstance(value, str):
        return MASK
    return mask_url_password(value) if isinstance(value, str) else value


def _flatten(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flatten(f"{path}.{key}" if path else str(key), item)
    else:
        yield path, "" if value is None else str(value)
