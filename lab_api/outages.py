"""What cannot be given for a while: told to the client in the words of what it asked for, and to the log once, as is its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lab_agent.catalogues.labels import PoolEmptyError
from lab_agent.errors import StoreError
from lab_agent.logs import get_logger
from lab_api.problems import service_unavailable

_log = get_logger(__name__)


class OutageReporter:
    """Which things, for which contract, could not be given when they were last asked for."""

    def __init__(self) -> None:
        self._unavailable: set[tuple[str, str | None]] = set()

    @contextmanager
    def report_outage(self, resource: str, contract: str | None = None) -> Iterator[None]:
        """Give something (`labels`, `documents`). Raises `Refused` (503) where the store is away or a pool is used up."""
        try:
            yield
        except (StoreError, PoolEmptyError) as exc:
            if (resource, contract) not in self._unavailable:
                self._unavailable.add((resource, contract))
                _log.error(f"no {resource} can be given", action=f"api.{resource}_unavailable", contract=contract, error=exc)
            raise service_unavailable(resource) from exc
        if (resource, contract) in self._unavailable:
            self._unavailable.discard((resource, contract))
            _log.info(f"{resource} can be given again", action=f"api.{resource}_restored", contract=contract)
