"""The settings for people's eyes: every secret is masked.

Adapter tables are raw, so a secret in them is known by its name only; passwords inside addresses are masked wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr

MASK = "***"
_SECRET_NAME = re.compile(r"password|passwd|secret|token|(^|_)keys?$|hash|credential", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")


def mask_secrets(settings: BaseModel) -> dict[str, Any]:
    """Give all values as plain data, secrets masked."""
    return {name: _mask_value(name, value) for name, value in settings.model_dump().items()}


def iter_masked_values(settings: BaseModel) -> Iterator[tuple[str, str]]:
    """Give every key with its masked value, one pair a key, as they are printed."""
    yield from _flatten("", mask_secrets(settings))


def mask_url_password(text: str) -> str:
    """Take the password out of an address."""
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", text)


def _mask_value(name: str, value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Mapping):
        return {key: _mask_value(str(key), item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_mask_value(name, item) for item in value]
    if _SECRET_NAME.search(name) and isinstance(value, str):
        return MASK
    return mask_url_password(value) if isinstance(value, str) else value


def _flatten(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flatten(f"{path}.{key}" if path else str(key), item)
    else:
        yield path, "" if value is None else str(value)
