"""The service at its worst: each kind of fault alone and in pairs, a day away, 401s for all at once, and clocks that jump."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice

import pytest
import structlog

from lab_sandbox.faults.plan import FaultPlan
from tests.harness.order_ends import SIGN_IN, OrderEnd, OrderRun
from tests.harness.proof import Figures, share_of
from tests.harness.world import World
from tests.proof.service_faults import FAULTS, plan_of, singles_and_pairs

pytestmark = [pytest.mark.proof, pytest.mark.timeout(4 * 3600)]

_ORDERS = share_of(50, at_least=3)
_BAD_FOR = timedelta(hours=1)
_THEN_SOUND_FOR = timedelta(hours=3)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits within one call are left to the outbox, whose waits pass by the world's own clock."""
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)
    monkeypatch.setattr("lab_agent.exchange.requests._MAX_RETRY_WAIT", 0.0)


@pytest.fixture(autouse=True)
def sent_bodies_are_valid_stu3() -> None:
    """What this service adds to Tasks against STU3 (`unknown_fields`) goes back to it as it came (law 4)."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nobody reads the log of so many failures."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


async def test_orders_end_the_same_with_every_pair_of_faults(figures: Figures) -> None:
    """First so few of the pairs that every kind is among them, then all."""
    total = share_of(len(list(singles_and_pairs())), at_least=(len(FAULTS) + 1) // 2)
    expected, _ = await _ends_with((), seed=0)
    assert {(each.state, each.waiting, each.at_laboratory) for each in expected} == {("closed", (), 1)}
    unused = set(FAULTS)
    for seed, kinds in enumerate(islice(singles_and_pairs(), total)):
        found, fired = await _ends_with(kinds, seed=seed)
        assert found == expected, f"repeat with {kinds!r} and seed {seed}"
        assert fired, f"nothing happened with {kinds!r} and seed {seed}"
        unused -= fired
        figures.add(runs_with_faults=1, orders=_ORDERS, ended_otherwise=0)
        figures.progress(seed + 1, total)
    assert not unused, "kinds of faults that never happened"
    figures.add(kinds_of_faults=len(FAULTS))


async def _ends_with(kinds: tuple[str, ...], *, seed: int) -> tuple[list[OrderEnd], set[str]]:
    """Let the orders come to their ends while these faults happen for an hour, then none; the ends, and which happened."""
    world = World("bad service", oauth=SIGN_IN)
    run, agent, faults = OrderRun(world), world.agent(), world.service.faults
    run.place(_ORDERS)
    faults.activate(plan_of(*kinds, seed=seed))
    await run.run(agent, until=_BAD_FOR)
    fired = {each["kind"] for each in faults.state()["faults"] if each["fired"]}
    faults.activate(FaultPlan())
    await run.run(agent, until=_THEN_SOUND_FOR)
    return await run.ends(), fired
