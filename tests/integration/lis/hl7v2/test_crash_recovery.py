"""A real process is killed again and again around handover and result intake: no order twice in the LIS, no result lost.

The LIS lives in the test; the process hands orders over and takes results; a journal stands for the agent's store. It is
killed with SIGKILL after a time drawn by lot, and started anew until all is done.
"""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from lab_agent.lis.testing import make_correction, make_order, make_report
from tests.fakes.hl7_lis import Hl7Lis
from tests.harness.adapter_journal import kept_values
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.harness.programs import free_port
from tests.harness.proof import FIGURES, share_of

PROCESS = """
import asyncio, sys
from pathlib import Path
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.testing import make_order
from tests.harness.adapter_journal import Journal, kept_values

async def main(base, orders, results, duplicates, count, one_line):
    links = {"orders": {"role": "client", "port": orders}, "results": {"role": "server", "port": results}}
    keys = {"duplicates": duplicates, "reconnect_wait": 0.02, "one_line_per_message": one_line}
    settings = Hl7v2Settings.model_validate({**links, **keys, "folder": base / "own"})
    adapter, journal = Hl7v2Adapter(settings, "hl7v2"), Journal(base / "journal")
    while True:
        try:
            await adapter.start(journal)
            break
        except Exception:
            await asyncio.sleep(0.02)
    print("up", flush=True)
    for seed in range(count):
        await journal.hand_over(adapter, make_order(seed))
    while len(kept_values(journal.path)) < count:
        await asyncio.sleep(0.005)
    await adapter.stop()

base, orders, results, duplicates, count, one_line = sys.argv[1:]
asyncio.run(main(Path(base), int(orders), int(results), duplicates, int(count), one_line == "True"))
"""


async def started(*words: object) -> asyncio.subprocess.Process:
    command = (sys.executable, "-c", PROCESS, *map(str, words))
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)


async def killed(process: asyncio.subprocess.Process, after: float) -> bool:
    """Kill a process so many seconds after it is up, unless it has ended by then."""
    assert process.stdout
    await asyncio.wait_for(process.stdout.readline(), DEADLINE)
    try:
        await asyncio.wait_for(process.wait(), after)
    except TimeoutError:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        return True
    assert process.returncode == 0
    return False


LONG = pytest.param(share_of(50, at_least=5), marks=pytest.mark.proof)


@pytest.mark.parametrize(("duplicates", "one_line"), [("msh10", False), ("placer", False), ("msh10", True)])
@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.slow), LONG])
async def test_adapter_killed_repeatedly_no_duplicates_no_loss(
    tmp_path: Path, duplicates: str, one_line: bool, kills: int
) -> None:
    """A process killed around submit and result intake gives the LIS no order (or line) twice and loses no result."""
    rng, count = random.Random(kills), 20 * kills
    lis, port = Hl7Lis(deduplicate_by=duplicates), free_port()
    orders = await lis.listen()
    lis.connect(port)
    values = [f"{rng.randrange(1000)}.{number:04d}" for number in range(count)]
    for seed, value in enumerate(values):
        lis.queue_result(make_correction(make_report(seed, make_order(seed)), value))
    keys = sorted(each.key for order in map(make_order, range(count)) for each in (order.lines if one_line else (order,)))
    done = 0
    try:
        for _ in range(20 * kills):
            done += await killed(
                await started(tmp_path, orders, port, duplicates, count, one_line), rng.uniform(0.0, 0.1) if done < kills else 100
            )
            if done >= kills and len(lis.accepted_ids) >= len(keys) and not lis.unacknowledged:
                break
    finally:
        await lis.close()
    assert done == kills
    assert sorted(lis.accepted_ids) == keys
    FIGURES.add(kills=kills)
    assert sorted(kept_values(tmp_path / "journal")) == sorted(values)
    assert not lis.unacknowledged
