"""What every settings group has in common: frozen, no unknown keys, and a description for each key.

The string under a field is its description: it is shown when the key is missing, and `docs/configuration.md` is made of it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A time span in seconds."""
Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 takes a free one."""


class SettingsGroup(BaseModel):
    """A table of the settings file. Values that were not understood are never repeated in an error: they may be secrets."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True, validate_default=True
    )
