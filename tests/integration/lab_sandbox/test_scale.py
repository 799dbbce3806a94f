"""Scale: 100,000 three-line orders with results in under 2 GB, and searches that use the index."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.harness.proof import FIGURES, in_full

FILL = Path(__file__).with_name("fill_sandbox.py")
ORDERS = 100_000
LIMIT_MB = 2000


async def fill(count):
    process = await asyncio.create_subprocess_exec(sys.executable, str(FILL), str(count), stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


def project(small, large):
    """Megabytes that 100,000 orders take, by the increase for each order."""
    each = (large["megabytes"] - small["megabytes"]) / (large["orders"] - small["orders"])
    return large["megabytes"] + each * (ORDERS - large["orders"])


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


@pytest.mark.parametrize(
    "path",
    [
        "/fhir/task?status=requested&code=OrderProcessingTask",
        "/fhir/task?part-of=task/1",
        "/fhir/Task?status=requested,completed&part-of=task/1",
        "/fhir/Observation?identifier=urn:x|1",
        "/fhir/Task",
    ],
)
async def test_searches_use_index_not_scan(world, path):
    await world.created_order()
    database, statements = world.app.state.service.store._db, []
    database.set_trace_callback(statements.append)
    await world.client.get(path, headers=world.laboratory)
    database.set_trace_callback(None)
    selects = [one for one in statements if "FROM" in one and "resource" in one]
    assert selects
    for statement in selects:
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert all(
            step.startswith(("SEARCH", "USE TEMP B-TREE FOR ORDER BY", "USE TEMP B-TREE FOR DISTINCT")) for step in plan
        ), plan
        if "IN ('requested'," not in statement:
            assert not any("TEMP B-TREE" in step for step in plan), plan
