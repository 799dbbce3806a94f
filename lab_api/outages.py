"""What cannot be given for a while: told to the client in the words of what it asked for, and to the log once, as is its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lab_agent.catalogues.labels import PoolEmptyError
from lab_agent.errors import StoreError
from lab_agent.logs import get_logger
from lab_api.problems import not_now

_log = get_logger(__name__)


class Outages:
    """Which things, for which contract, could not be given when they were last asked for."""

    def __init__(self) -> None:
        self._away: set[tuple[str, str | None]] = set()

    @contextmanager
    def watch(self, what: str, contract: str | None = None) -> Iterator[None]:
        """Give something (`labels`, `documents`). Raises `Refused` (503) where the store is away or a pool is used up."""
        try:
            yield
        except (StoreError, PoolEmptyError) as exc:
            if (what, contract) not in self._away:
                self._away.add((what, contract))
                _log.error(f"no {what} can be given", action=f"api.no_{what}", contract=contract, error=exc)
            raise not_now(what) from exc
        if (what, contract) in self._away:
            self._away.discard((what, contract))
            _log.info(f"{what} can be given again", action=f"api.{what}_again", contract=contract)
