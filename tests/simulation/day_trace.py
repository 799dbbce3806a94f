"""`python -m tests.simulation.day_trace SEED ...`: the digest of the trace of each of these days, one a line."""

from __future__ import annotations

import asyncio
import sys

from tests.harness.logging_off import no_logs
from tests.simulation.day_plan import plan_day
from tests.simulation.day_run import DayRun


async def digest_day(seed: int) -> str:
    """Run a day, and give the digest of its trace."""
    run = DayRun(plan_day(seed))
    await run.run()
    return run.trace.digest()


async def _main() -> None:
    for seed in sys.argv[1:]:
        print(await digest_day(int(seed)))  # noqa: T201


if __name__ == "__main__":
    with no_logs():
        asyncio.run(_main())
