"""`lab-agent status`: how operation is now, in one screen; with `--watch`, drawn again and again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from lab_agent import bootstrap
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.operation import Operation, read_operation
from lab_agent.cli.operation_output import condition_lines, format_verdict, format_worker, number_lines, operation_to_json
from lab_agent.cli.output import console, print_json
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared.text import escape_unprintable
from lab_agent.store.opening import build_cipher
from lab_agent.store.unit_of_work import Store

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Draw it again and again, until Ctrl-C.")]
EveryOption = Annotated[float, typer.Option("--every", min=0.5, metavar="SECONDS", help="With --watch: how often.")]


def status(
    config: ConfigOption = None, watch: WatchOption = False, every: EveryOption = 5.0, as_json: JsonOption = False
) -> None:
    """Show how operation is: what needs a person, what waits, what was done.

    Exit code 1 if a person is needed, 2 if something is critical.
    """
    settings = load_settings(config)
    if watch and not as_json:
        _watch(settings, config, every)
        return
    operation = asyncio.run(read_status(settings, config))
    if as_json:
        print_json(operation_to_json(operation))
    else:
        page = console()
        for line in _lines(operation, settings):
            page.print(line, soft_wrap=True)
    if operation.exit_code:
        raise typer.Exit(operation.exit_code)


async def read_status(settings: Settings, config: Path | None) -> Operation:
    """Read it with connections of its own: a database that was replaced meanwhile is seen as it is now."""
    store = Store(settings.store.url, build_cipher(settings.store))
    try:
        async with bootstrap.open_components(settings, store=store, config=config) as parts:
            return await read_operation(parts, offline=True, ask_agent=True)
    finally:
        await store.close()


def _watch(settings: Settings, config: Path | None, seconds: float) -> None:
    try:
        with Live(console=console(), auto_refresh=False, screen=console().is_terminal) as live:
            while True:
                live.update(Group(*_lines(asyncio.run(read_status(settings, config)), settings)), refresh=True)
                time.sleep(seconds)
    except KeyboardInterrupt:
        return


def _lines(operation: Operation, settings: Settings) -> list[Text]:
    style = "bold red" if operation.needing_person else "bold green"
    lines = [Text(format_verdict(operation), style=style), *condition_lines(operation), Text("")]
    numbers = [("time", f"{operation.at.astimezone():%Y-%m-%d %H:%M:%S}"), *number_lines(operation)]
    numbers += [("agent", format_worker(each, operation.at)) for each in operation.living]
    numbers += [("laboratory", name) for name in _laboratory_systems(operation, settings)]
    width = max(len(name) for name, _ in numbers) + 2
    return lines + [Text(escape_unprintable(f"{name:<{width}}{text}")) for name, text in numbers]


def _laboratory_systems(operation: Operation, settings: Settings) -> list[str]:
    """Each laboratory system, with how many lines wait there for a result."""
    waiting = {} if operation.store is None else operation.store.numbers.waiting_lines
    return [
        f"{name}: {waiting.get(name, 0)} lines wait for a result" if operation.store is not None else name
        for name in sorted({*settings.lis.tables, *waiting})
    ]
