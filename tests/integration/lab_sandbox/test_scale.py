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


def project(small, large):
    """Megabytes that 100,000 orders take, by the increase for each order."""
    each = (large["megabytes"] - small["megabytes"]) / (large["orders"] - small["orders"])
    return large["megabytes"] + each * (ORDERS - large["orders"])


@pytest.mark.slow
async def test_few_orders_project_total_within_limit():
    """The memory of a few orders, projected to 100,000, is below the limit."""
    small, large = await fill(30), await fill(330)
    assert large["resources"] > 300 * 15
    assert project(small, large) < LIMIT_MB


@in_full
@pytest.mark.proof
async def test_hundred_thousand_orders_fit_two_gigabytes():
    small, large = await fill(200), await fill(ORDERS)
    assert project(small, large) < LIMIT_MB
    # A scan of this many resources would take hundreds of milliseconds.
    assert large["poll_ms"] < 20
    assert large["part_of_ms"] < 5
    FIGURES.add(orders_in_the_sandbox=ORDERS)
