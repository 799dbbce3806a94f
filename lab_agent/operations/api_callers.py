"""Which callers of the laboratory's API are refused, and why: lab-api counts them in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from typing_extensions import override

from lab_agent.catalogue.records import ApiToken
from lab_agent.operations.monitor import Finding, Probe
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.store.api_refusals import ApiRefusals, RefusalReason
from lab_agent.store.unit_of_work import Store, UnitOfWork

_WINDOW = timedelta(hours=1)
_DETAILS = {
    RefusalReason.NO_CREDENTIALS: "requests come without credentials",
    RefusalReason.WRONG_CREDENTIALS: "requests come with a token, user or password that nobody has",
    RefusalReason.TOKEN_EXPIRED: "the token of {client} has expired",
    RefusalReason.TOKEN_REVOKED: "the token of {client} was revoked",
    RefusalReason.UNKNOWN_CONTRACT: "{client} asks for a contract that there is not, or that it may not see",
    RefusalReason.TOO_MANY_REQUESTS: "{client} asks more often than `api.rate` allows",
    RefusalReason.INVALID_REQUEST: "{client} sends requests that are not as the interface specifies",
}


@dataclass(frozen=True, slots=True)
class ApiCallersProbe(Probe):
    """Tells a reason and a client of which more than `limit` requests were refused within an hour, until none was for an hour.

    Requests without any credentials are a condition of their own, a notice: whoever scans addresses sends them, and nobody has to
    do anything. Who tried credentials is a caller that somebody has set up.
    """

    store: Store
    clock: Clock
    limit: int

    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.API_CALLERS_REFUSED, ConditionId.API_CALLERS_ANONYMOUS})

    @override
    async def look(self) -> Sequence[Finding]:
        return await self.store.run_read_only(self._find)

    def _find(self, uow: UnitOfWork) -> list[Finding]:
        since = self.clock.now() - _WINDOW
        refused = [each for each in uow.api_refusals.since(since) if each.last_at > since]
        told = uow.alerts.open_of(self.conditions) if refused else frozenset()
        found = [each for each in refused if each.count > self.limit or _key(each) in told]
        tokens = uow.api_tokens.all() if found else ()
        return [_to_finding(each, tokens) for each in found]


def _key(refused: ApiRefusals) -> AlertKey:
    if refused.reason is RefusalReason.NO_CREDENTIALS:
        return AlertKey(ConditionId.API_CALLERS_ANONYMOUS)
    subject = f"{refused.reason.value}/{refused.client}" if refused.client else refused.reason.value
    return AlertKey(ConditionId.API_CALLERS_REFUSED, subject)


def _to_finding(refused: ApiRefusals, tokens: Sequence[ApiToken]) -> Finding:
    detail = _DETAILS[refused.reason].format(client=refused.client or "a caller that nobody knows")
    if refused.reason is RefusalReason.TOKEN_EXPIRED:
        ended = [each.expires_at for each in tokens if each.name == refused.client and each.expires_at is not None]
        detail += f" ({max(ended):%Y-%m-%d %H:%M} UTC)" if ended else ""
    key = _key(refused)
    return Finding(condition=key.condition, subject=key.subject, detail=detail, since=refused.first_at, count=refused.count)
