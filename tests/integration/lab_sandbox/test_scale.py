"""Scale: 100,000 three-line orders with results in under 2 GB."""

import asyncio
import json
import sys

import pytest

from tests.harness.paths import ROOT
from tests.harness.proof import FIGURES, in_full

ORDERS = 100_000
LIMIT_MB = 2000


async def fill(count):
    command = (sys.executable, "-m", "tests.integration.lab_sandbox.fill_sandbox", str(count))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


@in_full
@pytest.mark.proof
async def test_hundred_thousand_orders_fit_two_gigabytes():
    large = await fill(ORDERS)
    assert large["megabytes"] < LIMIT_MB
    # A scan of this many resources would take hundreds of milliseconds.
    assert large["poll_ms"] < 20
    assert large["part_of_ms"] < 5
    FIGURES.add(orders_in_the_sandbox=ORDERS)
