"""The circuit breaker (law 10): a rule that rejects many orders in a short time stops rejecting until a person has checked it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.text import format_age
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class RejectionBreaker:
    """At most `limit` orders are rejected by one rule within `window`."""

    limit: int
    window: timedelta

    def tripped(self, uow: UnitOfWork, rules: Iterable[str], now: datetime) -> str | None:
        """The first of the rules that must not reject now; its alert is opened when it trips."""
        return next((rule for rule in sorted(set(rules)) if self._is_tripped(uow, rule, now)), None)

    def record_rejections(self, uow: UnitOfWork, rules: Iterable[str], order: OrderKey, now: datetime) -> None:
        """Count a rejection by each of the rules."""
        for rule in set(rules):
            uow.rejections.add(rule, order, at=now)

    def _is_tripped(self, uow: UnitOfWork, rule: str, now: datetime) -> bool:
        if uow.key_values.get(_tripped_key(rule)):
            return True
        reset_at = uow.key_values.get(_reset_key(rule))
        since = max(now - self.window, datetime.fromisoformat(reset_at)) if reset_at else now - self.window
        if uow.rejections.count_since(rule, since) < self.limit:
            return False
        uow.key_values.set(_tripped_key(rule), now.isoformat())
        detail = f"{self.limit} orders within {format_age(now - self.window, now)}"
        alert = Alert(condition=ConditionId.RULE_STOPPED, subject=rule, detail=detail, since=now, opened_at=now, count=self.limit)
        open_alert(uow, alert)
        return True


def reset_rule(uow: UnitOfWork, rule: str, now: datetime) -> bool:
    """Let a tripped rule reject again, counting from now. False if it was not tripped."""
    if not uow.key_values.get(_tripped_key(rule)):
        return False
    uow.key_values.set(_tripped_key(rule), "")
    uow.key_values.set(_reset_key(rule), now.isoformat())
    close_alert(uow, tripped_rule_alert_key(rule), now)
    return True


def tripped_rule_alert_key(rule: str) -> AlertKey:
    """The alert of a tripped rule."""
    return AlertKey(ConditionId.RULE_STOPPED, rule)


def _tripped_key(rule: str) -> str:
    return f"rule.{rule}.stopped"


def _reset_key(rule: str) -> str:
    return f"rule.{rule}.released"
