"""What is served: one catalogue version with its bodies made ready, and the shelf where it can be replaced while running.

Bodies are made once for each version, not for each request. The turnaround list is made again when a notice begins or ends.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from lab_agent import exact_json
from lab_agent.catalogue.items import Catalogue, Contract
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.turnaround import Notice, next_change


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A response body, plain and compressed, with its entity tag."""

    plain: bytes
    compressed: bytes
    etag: str

    @classmethod
    def of(cls, value: object) -> PreparedBody:
        """Make the body of a JSON value."""
        plain = exact_json.dumps(value)
        return cls(plain, gzip.compress(plain, 6, mtime=0), f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"')


class PreparedResponses:
    """One catalogue version, ready to be served, with what staff announced besides. `before` lends bodies that are the same."""

    def __init__(
        self, catalogue: Catalogue, now: datetime, notices: tuple[Notice, ...] = (), previous: PreparedResponses | None = None
    ) -> None:
        self.catalogue = catalogue
        self._notices = (*catalogue.notices, *notices)
        self._nomenclature: Mapping[str, PreparedBody] = (
            previous._nomenclature  # noqa: SLF001 - of our own class
            if previous is not None and previous.catalogue.version == catalogue.version
            else {code: PreparedBody.of(nomenclature(each)) for code, each in catalogue.contracts.items()}
        )
        self._eta: dict[str, PreparedBody] = {}
        self._eta_valid_from = now
        self._eta_valid_until: datetime | None = None
        self._prepare_eta(now)

    def nomenclature(self, contract: Contract) -> PreparedBody:
        """The nomenclature of a contract."""
        return self._nomenclature[contract.code]

    def eta(self, contract: Contract, now: datetime) -> PreparedBody:
        """The turnaround list of a contract at `now`."""
        if now < self._eta_valid_from or (self._eta_valid_until is not None and now >= self._eta_valid_until):
            self._prepare_eta(now)
        return self._eta[contract.code]

    def _prepare_eta(self, now: datetime) -> None:
        self._eta = {
            code: PreparedBody.of(turnarounds(each, self._notices, now)) for code, each in self.catalogue.contracts.items()
        }
        self._eta_valid_from, self._eta_valid_until = now, next_change(self._notices, now)


class CurrentCatalogue:
    """Holds what is served now. A new catalogue replaces it whole, or not at all."""

    def __init__(self, catalogue: Catalogue, now: Callable[[], datetime]) -> None:
        self.now = now
        self.responses = PreparedResponses(catalogue, now())

    def replace(self, catalogue: Catalogue, notices: tuple[Notice, ...] = ()) -> None:
        """Serve this one from now on. It is made ready first; requests that are being answered keep the old one."""
        self.responses = PreparedResponses(catalogue, self.now(), notices, self.responses)
