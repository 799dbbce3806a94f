"""What is served: one catalogue version with its bodies made ready, and the shelf where it can be replaced while running.

Bodies are made once for each version, not for each request. The turnaround list is made again when a notice begins or ends.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lab_agent import exact_json
from lab_agent.catalogue.items import Catalogue, Contract
from lab_agent.catalogue.load import load
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.turnaround import next_change
from lab_agent.errors import CatalogueError
from lab_agent.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Body:
    """A response body, plain and compressed, with its entity tag."""

    plain: bytes
    packed: bytes
    etag: str

    @classmethod
    def of(cls, value: object) -> Body:
        """Make the body of a JSON value."""
        plain = exact_json.dumps(value)
        return cls(plain, gzip.compress(plain, 6, mtime=0), f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"')


class Served:
    """One catalogue version, ready to be served."""

    def __init__(self, catalogue: Catalogue, now: datetime) -> None:
        self.catalogue = catalogue
        self._nomenclature = {code: Body.of(nomenclature(each)) for code, each in catalogue.contracts.items()}
        self._eta: dict[str, Body] = {}
        self._since = now
        self._until: datetime | None = None
        self._make_eta(now)

    def nomenclature(self, contract: Contract) -> Body:
        """The nomenclature of a contract."""
        return self._nomenclature[contract.code]

    def eta(self, contract: Contract, now: datetime) -> Body:
        """The turnaround list of a contract at `now`."""
        if now < self._since or (self._until is not None and now >= self._until):
            self._make_eta(now)
        return self._eta[contract.code]

    def _make_eta(self, now: datetime) -> None:
        notices = self.catalogue.notices
        self._eta = {code: Body.of(turnarounds(each, notices, now)) for code, each in self.catalogue.contracts.items()}
        self._since, self._until = now, next_change(notices, now)


class Shelf:
    """Holds what is served now. A new catalogue replaces it whole, or not at all."""

    def __init__(self, folder: Path, now: Callable[[], datetime]) -> None:
        self._folder = folder
        self.now = now
        self.served = Served(load(folder), now())

    def reload(self) -> bool:
        """Read the folder again; an invalid catalogue leaves the old one in place. Gives whether it was replaced."""
        try:
            fresh = Served(load(self._folder), self.now())
        except CatalogueError as exc:
            count, first = len(exc.problems), str(exc.problems[0])
            _log.warning(
                "the new catalogue is not valid; the old one stays", action="catalogue.refused", problems=count, reason=first
            )
            return False
        old, self.served = self.served, fresh
        version = fresh.catalogue.version
        _log.info("catalogue read", action="catalogue.loaded", version=version, changed=version != old.catalogue.version)
        return True
