"""Histories of results on the bench, as tables: what comes, what is decided, and what it has come to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from lab_agent.lis.lab_messages import LabMessage
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.shared.ids import LineKey
from lab_agent.shared.state_machines import ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ResultsBench, open_bench

Step = Callable[[ResultsBench], Awaitable[None]]
Expected = ReportState | HoldReason
TABLES = "tables"
"""For `mappings` of the settings: a folder with one table, which `mend` makes know the code NEW."""


async def play(steps: tuple[Step, ...], folder: Path | None = None, **results: Any) -> None:
    """Do the steps on a bench with these settings of `[results]`. A failure tells the number of its step."""
    if results.get("mappings") == TABLES:
        assert folder is not None
        (folder / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
        results = {**results, "mappings": str(folder)}
    async with open_bench(results) as bench:
        for number, step in enumerate(steps):
            try:
                await step(bench)
            except AssertionError as exc:
                exc.add_note(f"step {number}")
                raise


def check(report: ReportRecord, expected: Expected, named: str) -> None:
    assert (report.hold_reason or report.state) is expected, report.reason
    assert named in (report.reason or "")


def get(message: LabMessage, expected: Expected = ReportState.DELIVERED, named: str = "") -> Step:
    """A message comes, and comes to this; its reason names something."""

    async def step(bench: ResultsBench) -> None:
        check(await bench.receive(message), expected, named)

    return step


def now(number: int, expected: Expected, named: str = "") -> Step:
    """The message of this number has come to this by now."""

    async def step(bench: ResultsBench) -> None:
        check(await bench.get_report(f"m{number}"), expected, named)

    return step


def release(number: int, *, moved: bool = True) -> Step:
    async def step(bench: ResultsBench) -> None:
        assert (await bench.release(await bench.get_report(f"m{number}"))).moved is moved

    return step


def dismiss(number: int) -> Step:
    async def step(bench: ResultsBench) -> None:
        await bench.dismiss(await bench.get_report(f"m{number}"))

    return step


def act(action: Callable[[ResultsBench], Any]) -> Step:
    """Whatever else happens."""

    async def step(bench: ResultsBench) -> None:
        done = action(bench)
        if isinstance(done, Awaitable):
            await done

    return step


def faults(*rules: FaultRule) -> Step:
    return act(lambda bench: bench.inject_faults(*rules))


def withdraw(*lines: str) -> Step:
    return act(lambda bench: bench.withdraw(*map(LineKey, lines)))


def works() -> Step:
    """The service works again, and an hour later everything has happened."""

    async def recover(bench: ResultsBench) -> None:
        bench.inject_faults()
        bench.clock.time += timedelta(hours=1)
        await bench.run_until_idle()

    return act(recover)


def mend(*, release_all: bool = False) -> Step:
    """The table knows the code NEW from now on."""

    async def change(bench: ResultsBench) -> None:
        (Path(str(bench.settings.results.mappings)) / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
        await bench.reload_tables() if release_all else bench.mappings.reload()

    return act(change)


RETRY = act(lambda bench: bench.retry_stuck())


def same(found: Callable[[ResultsBench], Awaitable[Any]], expected: Any) -> Step:
    async def step(bench: ResultsBench) -> None:
        assert await found(bench) == expected

    return step


def states(*expected: ReportState) -> Step:
    return same(lambda bench: bench.report_states(), list(expected))


def lines(*expected: str) -> Step:
    """The states of the three lines; what is left out was accepted."""
    return same(lambda bench: bench.line_states(), [*expected, *["accepted"] * (3 - len(expected))])


def values(*expected: str, name: str = "hb") -> Step:
    """Every value that the service ever had of an observation."""
    return same(lambda bench: bench.values(name), list(expected))


def reads(*expected: str) -> Step:
    """The values of the only report that the clinic reads; of none if there are none."""

    async def found(bench: ResultsBench) -> list[str]:
        reports = await bench.clinic_reports()
        assert len(reports) == bool(expected)
        return sorted(str(one["valueQuantity"]["value"]) for report in reports for one in report.observations)

    return same(found, sorted(expected))
