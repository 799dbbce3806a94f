"""Where steps find the laboratory systems: a name gives an adapter, or says why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from lab_agent.errors import LisUnavailable
from lab_agent.ports.lis import Lis


class AdapterSource(Protocol):
    """The adapters that are set up."""

    def get(self, name: str | None = None) -> Lis:
        """The adapter of that name, the default one for None. Raises `LisUnavailable` with the reason where it is not running."""
        ...

    def running(self) -> Iterator[tuple[str, Lis]]:
        """Those that could be loaded, with their names."""
        ...


class NoAdapters:
    """No laboratory system at all: what a worker has that only observes."""

    def get(self, name: str | None = None) -> Lis:
        """Raise `LisUnavailable`: there is none."""
        raise LisUnavailable(f"this worker only observes; the laboratory system {name or 'of its orders'} is not spoken to")

    def running(self) -> Iterator[tuple[str, Lis]]:
        """Give none."""
        return iter(())
