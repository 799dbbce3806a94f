"""HL7 v2 over MLLP: results in (received, stored, acknowledged) and orders out, each against the same bytes on plain sockets;
and what the reading of a long message costs, since that system's other messages wait for it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from datetime import UTC
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import mllp
from benchmarks.child_process import ChildProcess, start_child
from benchmarks.measurement import Measurement, RunOptions, Usage
from benchmarks.workspace import make_workspace
from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.parser import decode_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.result_reader import ResultReader
from lab_agent.lis.testing import make_order

_CONNECTIONS = 4
"""As from a laboratory with several analysers."""
_OBSERVATIONS = 5
_LONG, _MOST_READING = 1600, 300.0
"""OBX of a long message, and the milliseconds of CPU that its reading takes at most."""


def measure(options: RunOptions) -> list[Measurement]:
    """Measure results in and orders out."""
    with TemporaryDirectory(prefix="lab-agent-benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        peer = stack.enter_context(start_child(folder, "benchmarks.mllp"))
        workspace = make_workspace(folder, "http://127.0.0.1:1/")
        port = str(peer.greeting["port"])
        agent = stack.enter_context(start_child(folder, "benchmarks.hl7_agent", str(workspace.settings_file), port))
        bench = _Hl7Bench(agent, peer)
        bench.receive(agent, 20)
        bench.submit(20)
        rounds = options.choose(1, 5)
        results = [
            (bench.receive(peer, options.choose(200, 1000)), bench.receive(agent, options.choose(100, 400)))
            for _ in range(rounds)
        ]
        orders = [
            (bench.send_like_orders(options.choose(200, 1000)), bench.submit(options.choose(50, 200))) for _ in range(rounds)
        ]
    long = [_measure_reading(kind) for kind in ("ST", "NM", "TX")]
    return [*_to_measurements("results in", results), *_to_measurements("orders out", orders), *long]


def _measure_reading(kind: str) -> Measurement:
    """Decode and read one message of very many OBX, the best of several times."""
    reader = ResultReader(ObxValueReader(default_field_map(), UTC), lambda _: None)
    values = (f"OBX|{n}|{kind}|{kind}{n if kind != 'TX' else ''}^^L||{n} of them|||||||F" for n in range(1, _LONG + 1))
    data = "\r".join((*_result_segments(1)[:4], *values)).encode()

    def cpu() -> float:
        before = time.process_time()
        (part,) = reader.read(decode_message(data, "utf-8"))
        if part.problem is not None:
            raise RuntimeError(part.problem)
        return 1000 * (time.process_time() - before)

    name = f"message of {_LONG:,} OBX of type {kind}: CPU"
    return Measurement(name=name, value=min(cpu() for _ in range(5)), unit="ms", at_most=_MOST_READING)


def _to_measurements(what: str, pairs: list[tuple[Usage, Usage]]) -> list[Measurement]:
    ours = [our for _, our in pairs]
    return [
        Measurement(name=f"{what}: CPU", value=median(each.cpu_per_order for each in ours), unit="ms/message"),
        Measurement(name=f"{what}: floor", value=median(each.cpu_per_order for each, _ in pairs), unit="ms/message"),
        Measurement(
            name=f"{what}: floor / ours",
            value=median(floor.cpu_per_order / our.cpu_per_order for floor, our in pairs),
            unit="",
            note="by CPU",
        ),
        Measurement(name=f"{what}: throughput", value=median(each.orders_per_second for each in ours), unit="messages/s"),
    ]


class _Hl7Bench:
    """The adapter, and the peer that is its laboratory system and its floor."""

    def __init__(self, agent: ChildProcess, peer: ChildProcess) -> None:
        self._agent = agent
        self._peer = peer
        self._numbers = count(1)

    def receive(self, receiver: ChildProcess, messages: int) -> Usage:
        """Send results to the adapter, or to the floor, on several connections."""
        before = receiver.ask()["total"]
        elapsed = asyncio.run(self._send_results(receiver.greeting["port"], messages))
        return Usage(receiver.ask()["total"] - before, elapsed, messages)

    def submit(self, orders: int) -> Usage:
        """Let the adapter send orders one after the other, each acknowledged before the next."""
        loop = asyncio.new_event_loop()
        started = loop.time()
        first = next(self._numbers) * 10_000
        cpu = self._agent.ask(submit=orders, first=first)["cpu"]
        elapsed = loop.time() - started
        loop.close()
        return Usage(cpu, elapsed, orders)

    def send_like_orders(self, orders: int) -> Usage:
        """Let the floor send as many messages of an order's length to itself, which costs it both ends."""
        text = mllp.wrap(_order_segments())
        answer = self._peer.ask(send=[text.decode()] * orders, port=self._peer.greeting["port"])
        return Usage(answer["cpu"], 1.0, orders)

    async def _send_results(self, port: int, messages: int) -> float:
        shares = [[mllp.wrap(_result_segments(next(self._numbers))) for _ in range(messages // _CONNECTIONS)]
                  for _ in range(_CONNECTIONS)]  # fmt: skip
        return max(await asyncio.gather(*(mllp.send(port, share) for share in shares)))


def _result_segments(number: int) -> list[str]:
    """ORU^R01 with five numeric observations."""
    values = [
        f"OBX|{place}|NM|{code}^{code}^LN||{number % 90 + place}.50|g/L|1.20-9.00|N|||F|||20260303090000+0000"
        for place, code in enumerate(("718-7", "2345-7", "3016-3", "1988-5", "2160-0"), 1)
    ]
    return [
        f"MSH|^~\\&|LIS|LAB|AGENT||20260303100000+0000||ORU^R01^ORU_R01|M{number}|P|2.5.1",
        "PID|1||X",
        f"ORC|RE||F{number}",
        f"OBR|1||F{number}|001.001|||20260303080000+0000|||||||||||||||20260303093000+0000|||F",
        *values[:_OBSERVATIONS],
    ]


def _order_segments() -> list[str]:
    """OML^O21 as long as one with three tests."""
    order = make_order(1)
    lines = [
        segment
        for place in range(1, 4)
        for segment in (
            f"ORC|NW|{order.key}-{place}||{order.key}|||||20260303100000+0000",
            f"OBR|{place}|{order.key}-{place}||LAB010.00{place}^Test 010.00{place}^L|||20260303080000+0000",
            f"SPM|{place}|00000010||100^^L|||||||||||||20260303080000+0000||||||||||EDTA",
        )
    ]
    return [
        "MSH|^~\\&|LAB-AGENT||LIS||20260303100000+0000||OML^O21^OML_O21|CONTROL1|P|2.5.1|||AL|NE||UNICODE UTF-8",
        "PID|1||X||Sample^Test^Person||19600101|F",
        *lines,
    ]
