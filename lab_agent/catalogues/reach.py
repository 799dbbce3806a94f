"""How far back catalogue versions are needed, to judge orders by what their clinics may have seen (interface: Limits).

Both who reads them (`catalogues.shelf`) and who removes old ones (housekeeping) ask here, so that none is gone too early.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.catalogue.items import Catalogue
from lab_agent.ports.store import UnitOfWork

_LONGEST_LIFETIME_KEY = "catalogue.longest_cache_lifetime"


@dataclass(frozen=True, slots=True)
class VersionHorizon:
    """`look_back` is how long an order may have been under way before we saw it; `cache_lifetime` the installation's."""

    look_back: timedelta
    cache_lifetime: timedelta

    def since(self, uow: UnitOfWork, now: datetime) -> datetime:
        """The moment since which every version is needed: for what comes now, and for each order that still waits for us."""
        oldest = min(now, uow.orders.unassessed_since() or now)
        return oldest - self.look_back - max(self.cache_lifetime, _longest_lifetime(uow))


def store_longest_lifetime(uow: UnitOfWork, catalogue: Catalogue) -> None:
    """Note the longest time for which a contract ever let the nomenclature be kept; call it where a version is put in force."""
    own = max((each.cache_lifetime_seconds or 0 for each in catalogue.contracts.values()), default=0)
    if timedelta(seconds=own) > _longest_lifetime(uow):
        uow.key_values.set(_LONGEST_LIFETIME_KEY, str(own))


def _longest_lifetime(uow: UnitOfWork) -> timedelta:
    return timedelta(seconds=int(uow.key_values.get(_LONGEST_LIFETIME_KEY) or 0))
