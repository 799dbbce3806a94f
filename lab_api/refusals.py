"""Counts the requests that are refused, by reason and client, for the store: the agent tells who cannot order, and why.

It takes no time of a request: counts are kept in memory and written together every few seconds. There is one for each reason and
client name, so that a hostile caller fills neither the memory nor the disk. Names are those of clients that we know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from starlette.requests import Request

from lab_agent.catalogue.records import ApiToken
from lab_agent.store.api_refusals import PROBE_USER_AGENT, ApiRefusals, RefusalReason, period_start
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_api.catalogue_sync import repeat

if TYPE_CHECKING:
    from lab_api.observation import Observation

WRITE_INTERVAL = 5.0
"""Seconds between two writes."""
_MAX_COUNTS = 1000
"""Counts that wait at most, while the database is unavailable."""
_REASONS = {
    400: RefusalReason.INVALID_REQUEST,
    404: RefusalReason.UNKNOWN_CONTRACT,
    413: RefusalReason.INVALID_REQUEST,
    415: RefusalReason.INVALID_REQUEST,
    429: RefusalReason.TOO_MANY_REQUESTS,
}
_Key = tuple[datetime, RefusalReason, str]


class RefusalCounter:
    """Counts of this process."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._counts: dict[_Key, ApiRefusals] = {}

    def count(self, reason: RefusalReason, client: str = "") -> None:
        """Count a request of a client; empty for one that nobody knows."""
        now = self._now()
        key = (period_start(now), reason, client)
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = replace(known, count=known.count + 1, last_at=now)
        elif len(self._counts) < _MAX_COUNTS:
            self._counts[key] = ApiRefusals(reason=reason, client=client, count=1, first_at=now, last_at=now)

    async def run(self) -> None:
        """Write until cancelled; while the database is unavailable, counting goes on."""
        await repeat(self.write, WRITE_INTERVAL, "the count of refused requests")

    async def write(self) -> None:
        """Write what was counted since the last time, if anything was. Raises `StoreError`; the next call writes it then."""
        written, self._counts = self._counts, {}
        if not written:
            return

        def work(uow: UnitOfWork) -> None:
            uow.api_refusals.add(tuple(written.values()), now=self._now())

        try:
            await self._store.transact(work)
        except BaseException:
            for key, each in written.items():
                self._put_back(key, each)
            raise

    def _put_back(self, key: _Key, counted: ApiRefusals) -> None:
        later = self._counts.get(key)
        last = counted.last_at if later is None else later.last_at
        self._counts[key] = replace(counted, count=counted.count + (later.count if later else 0), last_at=last)


def find_ended(tokens: Iterable[ApiToken]) -> tuple[RefusalReason, str]:
    """Say why none of these tokens is valid any more, and whose they are; where there are none, the credential was wrong."""
    for token in tokens:
        return (RefusalReason.TOKEN_REVOKED if token.revoked_at else RefusalReason.TOKEN_EXPIRED), token.name
    return RefusalReason.WRONG_CREDENTIALS, ""


def count_refusal(request: Request, status: int, reason: RefusalReason | None = None, client: str = "") -> None:
    """Count a request that is answered with `status`; the reason follows from that, if none is given.

    The agent's own look at the public address is not counted.
    """
    found = reason or _REASONS.get(status)
    if found is None or _is_probe(request):
        return
    observation: Observation = request.app.state.observation
    observation.metrics.record_refusal(found)
    if observation.refusals is not None:
        observation.refusals.count(found, client or getattr(request.state, "client", ""))


def _is_probe(request: Request) -> bool:
    return request.headers.get("user-agent") == PROBE_USER_AGENT and "authorization" not in request.headers
