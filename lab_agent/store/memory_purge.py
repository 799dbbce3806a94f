"""Forgetting on time, in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from lab_agent.domain.lifecycle import OPEN_EFFECTS, OrderState
from lab_agent.store.memory_shelf import Shelf
from lab_agent.store.states import FINISHED_REPORTS


class MemoryPurge:
    """Takes what is finished and old from the shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Forget the identification data of orders that closed before then and have no open effect."""
        keys = [key for key in self._finished(before) if key in self._shelf.identities][:limit]
        for key in keys:
            del self._shelf.identities[key]
        return len(keys)

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Forget documents kept since before then that no unfinished report names and that are not served (any more)."""
        bodies = [each.body for each in self._shelf.reports.values() if each.state not in FINISHED_REPORTS]
        served = {each.document for each in self._shelf.hosted.values() if each.expires_at is None or each.expires_at >= before}
        old = [name for name, (_, _, at) in self._shelf.documents.items() if at < before and name not in served]
        unused = [name for name in old if not any(f'"{name}"'.encode() in body for body in bodies)][:limit]
        for name in unused:
            del self._shelf.documents[name]
        return len(unused)

    def journal(self, *, before: datetime, limit: int = 500) -> int:
        """Forget all about orders that are finished since before then, and what is finished and belongs to no order."""
        waiting = {each.order for each in self._shelf.reports.values() if each.state not in FINISHED_REPORTS}
        gone = set([key for key in self._finished(before) if key not in waiting][:limit])
        self._forget_orders(gone)
        self._forget_effects_and_reports(gone, before)
        self._forget_histories(before)
        self._shelf.alerts = [each for each in self._shelf.alerts if each.closed_at is None or each.closed_at >= before]
        self._shelf.refusals = [each for each in self._shelf.refusals if each[1] not in gone and each[2] >= before]
        return len(gone)

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were given before then; the barcodes stay."""
        given = self._shelf.labels_given
        old = [each for each in given.values() if each.basket is not None and each.given_at < before][:limit]
        given.update({each.label: replace(each, basket=None) for each in old})
        return len(old)

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Forget catalogue versions that were replaced before then, but for the newest `keep`."""
        versions = self._shelf.catalogues
        in_force = max((place for place, each in enumerate(versions) if each.since <= before), default=0)
        gone = max(0, min(in_force, len(versions) - keep, limit))
        self._shelf.catalogues = versions[gone:]
        return gone

    def _finished(self, before: datetime) -> list[str]:
        busy = {effect.order for effect in self._shelf.effects.values() if effect.state in OPEN_EFFECTS}
        old = (each for each in self._shelf.orders.values() if each.state is OrderState.CLOSED and each.changed_at < before)
        return [order.key for order in sorted(old, key=lambda order: order.changed_at) if order.key not in busy]

    def _forget_orders(self, gone: set[str]) -> None:
        shelf = self._shelf
        shelf.orders = {key: each for key, each in shelf.orders.items() if key not in gone}
        shelf.identities = {key: each for key, each in shelf.identities.items() if key not in gone}
        shelf.lines = {key: each for key, each in shelf.lines.items() if each.order not in gone}
        shelf.uploads = {key: each for key, each in shelf.uploads.items() if each.order not in gone}
        shelf.hosted = {key: each for key, each in shelf.hosted.items() if each.order not in gone}
        shelf.labels = [each for each in shelf.labels if each.order not in gone]
        shelf.events = [each for each in shelf.events if each.order not in gone]

    def _forget_effects_and_reports(self, gone: set[str], before: datetime) -> None:
        shelf = self._shelf
        old_effects = {
            number
            for number, each in shelf.effects.items()
            if each.order in gone or (each.order is None and each.state not in OPEN_EFFECTS and each.changed_at < before)
        }
        old_reports = {
            key
            for key, each in shelf.reports.items()
            if each.order in gone or (each.order is None and each.state in FINISHED_REPORTS and each.changed_at < before)
        }
        shelf.once -= {shelf.effects[number].once for number in old_effects}
        shelf.effects = {number: each for number, each in shelf.effects.items() if number not in old_effects}
        shelf.reports = {key: each for key, each in shelf.reports.items() if key not in old_reports}

    def _forget_histories(self, before: datetime) -> None:
        """Forget what was told of reports without an order that are forgotten by now."""
        shelf = self._shelf
        shelf.events = [
            each for each in shelf.events if each.order is not None or each.report in shelf.reports or each.at >= before
        ]
