"""Which laboratory systems there are.

The agent knows only the names of the adapter tables: what is inside belongs to the adapter, whose own model reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict

from lab_agent.settings_base import Group, Seconds


@dataclass(frozen=True, slots=True)
class AdapterTable:
    """One `[lis.<name>]` table: `adapter` is the entry point's name, `settings` everything else in it."""

    name: str
    adapter: str
    settings: Mapping[str, Any]


class LisSettings(Group):
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

    def adapters(self) -> tuple[AdapterTable, ...]:
        """The adapter tables, by name."""
        return tuple(_adapter(name, table) for name, table in sorted((self.__pydantic_extra__ or {}).items()))


def _adapter(name: str, table: Mapping[str, Any]) -> AdapterTable:
    own = {key: value for key, value in table.items() if key != "adapter"}
    return AdapterTable(name, str(table.get("adapter", name)), own)
