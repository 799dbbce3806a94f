"""`docs/configuration.md`, made of the settings models: every key with its kind, its default and its description.

`python -m tools.docs.configuration` prints the page; a test holds the file against it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, SecretStr
from pydantic.fields import FieldInfo

from lab_agent.lis.registry import ENTRY_POINT_GROUP
from lab_agent.settings.introspection import ARRAY_SUFFIX, is_list, iter_keys, iter_tables
from lab_agent.settings.root import Settings

_SETTINGS_HEADER = """# Configuration

<!-- Made by `python -m tools.docs.configuration`; a test holds this file against the program. -->

`lab-agent` and `lab-api` read one TOML file, named by `--config` or by the variable `LAB_AGENT_CONFIG`.
[`config/lab-agent.example.toml`](../config/lab-agent.example.toml) shows every key in its place; `lab-agent init` writes a
short file that holds; `lab-agent check` tries it, line by line.

- **Sources.** The environment wins over the file, and a systemd credential wins over both. A variable is named
  `LAB_AGENT_<TABLE>__<KEY>`, as in `LAB_AGENT_EXCHANGE__BASE_URL`; a credential is a file named like the key, as in
  `LoadCredential=exchange.oauth.password`. A list is then written as words. Tables with names of your own choice
  (contracts, adapters) are best kept in the file: variables know no capital letters.
- **Secrets** are best given as credentials. They are never printed: `lab-agent check --settings` masks them.
- **Paths** that are relative are relative to the working directory, not to the settings file.
- **Times** are in seconds unless the key says otherwise.
- **Errors** come all at once, each with its key and its mend; a program does not start with one.
- **Reloading.** SIGHUP applies a change of `[logging]` and reads the catalogue and the mapping tables again; everything else
  needs a restart.
"""


def settings_page(adapters: Mapping[str, type[BaseModel]]) -> str:
    """The whole page; `adapters` are the settings models of the built-in adapters by their names."""
    parts = [_SETTINGS_HEADER, *(_settings_table(path, model) for path, model in iter_tables(Settings))]
    parts += [_settings_table(f"lis.{name}", model) for name, model in adapters.items()]
    return "\n".join(parts)


def _settings_table(path: str, model: type[BaseModel]) -> str:
    name = f"[{path}]" if not path.endswith(ARRAY_SUFFIX) else f"[[{path.removesuffix(ARRAY_SUFFIX)}]]"
    rows = [_setting_row(key.name, key.field) for key in iter_keys(model) if not key.table]
    about = " ".join((model.__doc__ or "").split())
    head = "| Key | Kind | Default | Meaning |\n|---|---|---|---|\n"
    return f"## `{name}`\n\n{about}\n\n{head}{''.join(rows)}"


def _setting_row(name: str, field: FieldInfo) -> str:
    about = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | {_type_name(field.annotation)} | {_setting_default(name, field)} | {about} |\n"


def _setting_default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ({}, (), []):
        return "–"
    return f"`0o{value:o}`" if name.endswith("_mode") else f"`{_toml_literal(value)}`"


def _toml_literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, int) else f'"{value}"'


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _type_name(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(annotation))
    if get_origin(annotation) in {Union, types.UnionType}:
        return _type_name(next(part for part in get_args(annotation) if part is not type(None)))
    if is_list(annotation):
        return f"list of {_type_name(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"table of {_type_name(get_args(annotation)[1])}"
    return _TYPE_NAMES.get(annotation) or str(annotation.__name__).lower()


_TYPE_NAMES: dict[Any, str] = {
    str: "text",
    bool: "yes or no",
    int: "integer",
    float: "number",
    SecretStr: "secret",
    AwareDatetime: "time with offset",
}


def built_in_adapter_settings() -> dict[str, type[BaseModel]]:
    """The settings models of the adapters that come with this program."""
    doors = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda door: door.name)
    return {door.name: door.load().Settings for door in doors if door.dist and door.dist.name == "lab-agent"}


if __name__ == "__main__":
    sys.stdout.write(settings_page(built_in_adapter_settings()))
