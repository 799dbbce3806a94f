"""Settings that are each valid and do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lab_agent.errors import Problem
from lab_agent.settings_problems import nearest

if TYPE_CHECKING:
    from lab_agent.settings import Settings


def contradictions(settings: Settings) -> tuple[Problem, ...]:
    """Find what contradicts itself."""
    return (*_worker(settings), *_lis(settings))


def _worker(settings: Settings) -> Iterator[Problem]:
    worker = settings.worker
    if worker.poll_longest < worker.poll_interval:
        yield Problem("worker.poll_longest", "is shorter than worker.poll_interval", "make it at least as long")
    if worker.backoff_longest < worker.backoff_first:
        yield Problem("worker.backoff_longest", "is shorter than worker.backoff_first", "make it at least as long")
    if worker.lease <= settings.lis.call_timeout:
        yield Problem(
            "worker.lease",
            "does not outlast lis.call_timeout, so that two workers could hand over one order",
            f"make it longer than {settings.lis.call_timeout:g} seconds",
        )


def _lis(settings: Settings) -> Iterator[Problem]:
    names = [table.name for table in settings.lis.adapters()]
    if not names:
        yield Problem("lis", "names no laboratory system", f"add a table [lis.{settings.lis.default}]")
    elif settings.lis.default not in names:
        near = nearest(settings.lis.default, names)
        yield Problem(
            "lis.default",
            f"there is no table [lis.{settings.lis.default}]",
            f"did you mean {near}?" if near else f"the tables are {', '.join(names)}",
        )
