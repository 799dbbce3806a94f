"""Which files hold secrets of ours: the settings file, where any is in it, and the files of the credentials folder."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from lab_agent.settings.introspection import mask_url_password, resolve_location
from lab_agent.settings.root import Settings
from lab_agent.settings.sources import credentials_folder

_SECRET_NAME = re.compile(r"password|passwd|secret|token|_keys?$|credential", re.IGNORECASE)
"""Keys of an adapter's table, whose model is not known here. `key` alone is the path of a file."""


def list_secret_files(config: Path | None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Give the files that nobody else should be able to read; one that cannot be read by us is left out."""
    own = (config,) if config is not None and _file_has_secret(config) else ()
    folder = credentials_folder(os.environ if environ is None else environ)
    if folder is None:
        return own
    try:
        files = sorted(each for each in folder.iterdir() if each.name.partition(".")[0] in Settings.model_fields)
    except OSError:
        return own
    return (*own, *files)


def has_secret(value: Any, location: tuple[str | int, ...] = ()) -> bool:
    """Whether a table of settings, or a value at this location of them, holds a secret."""
    if isinstance(value, Mapping):
        return any(has_secret(item, (*location, key)) for key, item in value.items())
    if isinstance(value, list):
        return any(has_secret(item, (*location, place)) for place, item in enumerate(value))
    if not isinstance(value, str) or not value:
        return False
    return mask_url_password(value) != value or _is_secret_key(location)


def _is_secret_key(location: tuple[str | int, ...]) -> bool:
    found = resolve_location(Settings, location)
    if isinstance(found, FieldInfo):
        return _names_secret(found.annotation)
    return found is None and bool(_SECRET_NAME.search(str(location[-1])))


def _names_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_names_secret, get_args(annotation)))


def _file_has_secret(path: Path) -> bool:
    try:
        return has_secret(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # it is reported where it is read
        return False
