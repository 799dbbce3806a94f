"""Which laboratory systems there are.

The agent knows only the names of the adapter tables: what is inside belongs to the adapter, whose own model reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict

from lab_agent.settings.base import Seconds, SettingsGroup


class LisSettings(SettingsGroup):
    """The laboratory systems. Each further table `[lis.<name>]` is one adapter, with the adapter's own keys.

    The key `adapter` in it names the kind of adapter where that is not the table's name.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]]

    default: str = "folder"
    """Name of the `[lis.<name>]` table whose laboratory system gets the orders."""
    call_timeout: Seconds = 60.0
    """Seconds that one call to an adapter may take; afterwards its outcome counts as unknown."""
    collect_interval: Seconds = 10.0
    """Seconds between two looks for results."""

    @property
    def tables(self) -> Mapping[str, Mapping[str, Any]]:
        """The adapter tables by name, each with everything that stands in it."""
        return self.__pydantic_extra__ or {}
