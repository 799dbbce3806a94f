"""The http adapter keeps the contract: with a LIS that can be asked, with one that cannot, and behind the guard."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.laboratory_system import Lis
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import AdapterContract, Bench, LisState
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, HttpLis
from tests.harness.programs import free_port


@dataclass
class HttpBench:
    asked: bool = True
    lis: HttpLis = field(default_factory=lambda: HttpLis(free_port()))

    @property
    def settings(self) -> dict[str, Any]:
        own = {"url": self.lis.url, "secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, "port": self.lis.agent_port}
        return own | ({"status_path": "orders/{key}", "check_path": "health"} if self.asked else {})

    def adapter(self) -> Lis:
        return HttpAdapter(HttpSettings.model_validate(self.settings), "http")

    async def orders(self) -> Sequence[str]:
        return list(self.lis.orders)

    async def cancelled_lines(self) -> Sequence[str]:
        return sorted(self.lis.cancelled_lines)

    async def publish(self, message: LabMessage) -> None:
        self.lis.queue_result(dump_message(message))

    async def unacknowledged_count(self) -> int:
        return len(self.lis.outbox)

    async def publish_bad(self) -> None:
        self.lis.queue_result(b'{"kind": "report", "status": "finished"}')

    async def bad_results_kept(self) -> int:
        return len(self.lis.refused)

    async def set_state(self, state: LisState) -> None:
        await asyncio.to_thread(self.lis.set_state, state.value)

    async def close(self) -> None:
        await asyncio.to_thread(self.lis.close)
        assert self.lis.bad_signatures == 0


class TestHttp(AdapterContract):
    async def bench(self, folder: Path) -> Bench:
        return HttpBench()


@pytest.mark.slow
class TestHttpThatCannotBeAsked(AdapterContract):
    test_check_says_that_the_lis_is_unreachable = None  # type: ignore[assignment]  # there is nothing to ask: no `check_path`

    async def bench(self, folder: Path) -> Bench:
        return HttpBench(asked=False)
