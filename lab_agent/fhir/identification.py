"""What identifies a person outside of Patient resources, taken out before a resource is kept with medical data (law 7).

Names slip in by three doors: the `display` of a reference, the narrative `text.div`, and `contained` resources. None of the three
is used by anything here; a Task is always read afresh before it is written, so nothing that others wrote is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def strip_identification(value: Any) -> Any:
    """Give a copy of JSON without narratives, contained resources and displays of references; the input is not changed."""
    if isinstance(value, Mapping):
        return {key: strip_identification(item) for key, item in value.items() if not _is_identifying(value, key, item)}
    if isinstance(value, list | tuple):
        return [strip_identification(item) for item in value]
    return value


def _is_identifying(owner: Mapping[str, Any], key: str, item: Any) -> bool:
    if key == "display":
        return "code" not in owner
    return key == "contained" or (key == "text" and isinstance(item, Mapping))
