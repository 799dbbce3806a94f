"""Forgetting on time, in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from lab_agent.domain.lifecycle import OPEN_JOBS, OrderState
from lab_agent.store.memory_shelf import MemoryData
from lab_agent.store.states import FINISHED_REPORTS


class MemoryPurge:
    """Takes what is finished and old from the shelf."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Forget the identification data of orders that closed before then and have no open effect."""
        keys = [key for key in self._finished_order_keys(before) if key in self._data.identities][:limit]
        for key in keys:
            del self._data.identities[key]
        return len(keys)

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Forget documents kept since before then that no unfinished report names and that are not served (any more)."""
        bodies = [each.body for each in self._data.reports.values() if each.state not in FINISHED_REPORTS]
        served = {
            each.document for each in self._data.hosted_documents.values() if each.expires_at is None or each.expires_at >= before
        }
        old = [name for name, (_, _, at) in self._data.documents.items() if at < before and name not in served]
        unused = [name for name in old if not any(f'"{name}"'.encode() in body for body in bodies)][:limit]
        for name in unused:
            del self._data.documents[name]
        return len(unused)

    def closed_orders(self, *, before: datetime, limit: int = 500) -> int:
        """Forget all about orders that are finished since before then, and what is finished and belongs to no order."""
        waiting = {each.order for each in self._data.reports.values() if each.state not in FINISHED_REPORTS}
        gone = set([key for key in self._finished_order_keys(before) if key not in waiting][:limit])
        self._delete_orders(gone)
        self._delete_jobs_and_reports(gone, before)
        self._delete_report_events(before)
        self._data.alerts = [each for each in self._data.alerts if each.closed_at is None or each.closed_at >= before]
        self._data.rejections = [each for each in self._data.rejections if each[1] not in gone and each[2] >= before]
        return len(gone)

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were given before then; the barcodes stay."""
        given = self._data.issued_labels
        old = [each for each in given.values() if each.basket is not None and each.issued_at < before][:limit]
        given.update({each.label: replace(each, basket=None) for each in old})
        return len(old)

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Forget catalogue versions that were replaced before then, but for the newest `keep`."""
        versions = self._data.catalogues
        in_force = max((place for place, each in enumerate(versions) if each.since <= before), default=0)
        gone = max(0, min(in_force, len(versions) - keep, limit))
        self._data.catalogues = versions[gone:]
        return gone

    def _finished_order_keys(self, before: datetime) -> list[str]:
        busy = {job.order for job in self._data.jobs.values() if job.state in OPEN_JOBS}
        old = (each for each in self._data.orders.values() if each.state is OrderState.CLOSED and each.changed_at < before)
        return [order.key for order in sorted(old, key=lambda order: order.changed_at) if order.key not in busy]

    def _delete_orders(self, gone: set[str]) -> None:
        shelf = self._data
        shelf.orders = {key: each for key, each in shelf.orders.items() if key not in gone}
        shelf.identities = {key: each for key, each in shelf.identities.items() if key not in gone}
        shelf.lines = {key: each for key, each in shelf.lines.items() if each.order not in gone}
        shelf.uploads = {key: each for key, each in shelf.uploads.items() if each.order not in gone}
        shelf.hosted_documents = {key: each for key, each in shelf.hosted_documents.items() if each.order not in gone}
        shelf.label_uses = [each for each in shelf.label_uses if each.order not in gone]
        shelf.events = [each for each in shelf.events if each.order not in gone]

    def _delete_jobs_and_reports(self, gone: set[str], before: datetime) -> None:
        shelf = self._data
        old_effects = {
            number
            for number, each in shelf.jobs.items()
            if each.order in gone or (each.order is None and each.state not in OPEN_JOBS and each.changed_at < before)
        }
        old_reports = {
            key
            for key, each in shelf.reports.items()
            if each.order in gone or (each.order is None and each.state in FINISHED_REPORTS and each.changed_at < before)
        }
        shelf.dedup_keys -= {shelf.jobs[number].dedup_key for number in old_effects}
        shelf.jobs = {number: each for number, each in shelf.jobs.items() if number not in old_effects}
        shelf.reports = {key: each for key, each in shelf.reports.items() if key not in old_reports}

    def _delete_report_events(self, before: datetime) -> None:
        """Forget what was told of reports without an order that are forgotten by now."""
        shelf = self._data
        shelf.events = [
            each for each in shelf.events if each.order is not None or each.report in shelf.reports or each.at >= before
        ]
