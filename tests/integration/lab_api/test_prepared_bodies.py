"""Prepared responses: made in a thread, once for all who ask at the same time, and bounded in size."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.catalogue.model import Contract
from lab_agent.catalogue.nomenclature import turnarounds
from lab_agent.catalogue.turnaround import Notice, NoticePeriod, Stopped
from lab_api import response_cache
from lab_api.response_cache import CurrentCatalogue, PreparedBodies
from tests.harness.clock import DEADLINE

CONTRACTS = [Contract(f"C-{number}", "", {}) for number in range(5)]


class Maker:
    """Makes a body of a kilobyte that is all its own, and notes for whom and where."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self, contract: Contract) -> str:
        self.made.append(contract.code)
        self.threads.add(threading.current_thread())
        self.began.set()
        assert self.may_end.wait(DEADLINE)
        return contract.code * 300


async def test_simultaneous_callers_share_one_preparation() -> None:
    make = Maker()
    bodies = PreparedBodies(make)
    callers = [asyncio.create_task(bodies.get(CONTRACTS[0])) for _ in range(5)]
    assert await asyncio.to_thread(make.began.wait, 10)  # the loop goes on meanwhile
    callers.pop().cancel()
    make.may_end.set()
    found = await asyncio.gather(*callers)
    assert make.made == ["C-0"]
    assert threading.main_thread() not in make.threads
    assert all(each is found[0] for each in found)


async def test_failed_preparation_is_tried_again() -> None:
    def fail_once(contract: Contract) -> str:
        made.append(contract.code)
        if len(made) == 1:
            raise ZeroDivisionError
        return "x"

    made: list[str] = []
    bodies = PreparedBodies(fail_once)
    with pytest.raises(ZeroDivisionError):
        await bodies.get(CONTRACTS[0])
    assert (await bodies.get(CONTRACTS[0])).plain == b'"x"'


async def test_least_recently_used_body_is_dropped() -> None:
    make = Maker()
    make.may_end.set()
    bodies = PreparedBodies(make, max_bytes=2500)
    for place in (0, 1, 0, 2, 0, 1):
        await bodies.get(CONTRACTS[place])
    assert make.made == ["C-0", "C-1", "C-2", "C-1"]


async def test_preparation_in_advance_ends_at_limit() -> None:
    make = Maker()
    make.may_end.set()
    bodies = PreparedBodies(make, max_bytes=2500)
    bodies.prepare(CONTRACTS)
    assert make.made == ["C-0", "C-1"]


async def test_turnaround_list_made_once_when_notice_begins(
    current_catalogue: CurrentCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    period = NoticePeriod(now + timedelta(hours=1), now + timedelta(hours=2))
    current_catalogue.replace(current_catalogue.responses.catalogue, (Notice("001.001", Stopped(period)),))
    served, contract = current_catalogue.responses, current_catalogue.responses.catalogue.contract("C-100")
    threads: list[threading.Thread] = []

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*args)

    real = turnarounds
    monkeypatch.setattr(response_cache, "turnarounds", noted)
    found = await asyncio.gather(*(served.eta(contract, period.start) for _ in range(4)))
    assert b"stopped" in found[0].plain
    assert all(each is found[0] for each in found)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
