"""Brings resources of one report to the service side by side, so that all their answers are recorded in one unit of work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lab_agent.fhir.report_builder import Upload
from lab_agent.orders.restored_store import note_second_agent
from lab_agent.results.records import UploadRecord
from lab_agent.results.resource_upload import Answer, Uploader, error_context
from lab_agent.shared.errors import AmbiguousFailure
from lab_agent.store.unit_of_work import UnitOfWork

MAX_SIDE_BY_SIDE = 4
"""Uploads of one report at a time. A report of usual size so waits for about two answers instead of ten, and takes at most half
of the calls that may run at once (`exchange.max_concurrency`, 8 unless set), so that other orders go on beside it.
"""


@dataclass(frozen=True, slots=True)
class UploadBatch:
    """Uploads that need nothing of each other, each by its place in the report. It is sent once."""

    uploader: Uploader
    uploads: Mapping[str, Upload]
    _answers: dict[str, Answer] = field(default_factory=dict)

    def save_started(self, uow: UnitOfWork) -> None:
        """Record, before anything is sent, what is about to be: the replies may be lost."""
        self.uploader.save_started(uow, self.uploads.values())

    async def send(self) -> None:
        """Send all; nothing is raised but cancellation.

        After a failure no further upload is begun. Those that had been are waited for: what the service has answered can so be
        recorded, whatever became of the others.
        """
        waiting = iter(self.uploads.items())
        workers = [asyncio.create_task(self._send_each(waiting)) for _ in range(min(len(self.uploads), MAX_SIDE_BY_SIDE))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def save_answers(self, uow: UnitOfWork, now: datetime) -> None:
        """Record what the service has answered, and of what was not begun, that nothing was sent.

        What was there already, is of our making and was never sent from here, another agent has brought there: that is told.
        """
        for where, upload in self.uploads.items():
            record = self._answers[where].record if where in self._answers else self.uploader.unsent(upload)
            if record is not None:
                uow.uploads.save(record)
        if self.unknown:
            note_second_agent(uow, now, self.unknown, before=uow.orders.get(self.uploader.order).seen_at)

    @property
    def records(self) -> Mapping[str, UploadRecord]:
        """The records of the uploads that the service has confirmed, by their places in the report."""
        return {where: each.record for where, each in self._answers.items() if each.record is not None and each.failure is None}

    @property
    def unknown(self) -> str:
        """The first that was on the service although nothing of it was ever sent, as far as our records go; empty if none was."""
        return next((each.unknown for each in self._answers.values() if each.unknown), "")

    @property
    def failed(self) -> tuple[str, Exception] | None:
        """The failure that decides how the job goes on, with its place in the report; None if there is none.

        One whose outcome is unknown has to be settled first (law 3); else the first in the report decides.
        """
        given = ((where, self._answers[where].failure) for where in self.uploads if where in self._answers)
        failures = [(where, failure) for where, failure in given if failure is not None]
        unknown = (each for each in failures if isinstance(each[1], AmbiguousFailure))
        return next(unknown, next(iter(failures), None))

    def raise_failure(self) -> None:
        """Raise the failure that decides, if there is one."""
        if self.failed is not None:
            where, failure = self.failed
            with error_context(where):
                raise failure

    async def _send_each(self, waiting: Iterator[tuple[str, Upload]]) -> None:
        for where, upload in waiting:
            try:
                self._answers[where] = await self.uploader.send(upload)
            except Exception as error:  # noqa: BLE001 - a fault of ours: it is raised once the other answers are recorded
                self._answers[where] = Answer(None, error)
            if self.failed is not None:
                return
