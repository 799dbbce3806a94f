"""A progress bar on standard error, for commands that take longer than a second and that somebody watches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lab_agent.store.progress import Tell, tell_nobody

SHOWN_AFTER = 1.0
"""Seconds: what is done sooner shows none."""


@contextmanager
def progress_bar(text: str, *, as_json: bool = False) -> Iterator[Tell]:
    """Give what is to be told how far the work is. Nothing is shown for programs: with `--json`, or without a terminal.

    As long as nothing is told, the bar only moves; it is gone at the end.
    """
    if as_json or not sys.stderr.isatty():
        yield tell_nobody
        return
    from rich.console import Console  # noqa: PLC0415 - no command waits for its import that shows no bar
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=None)

    def tell(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)

    timer = threading.Timer(SHOWN_AFTER, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bar just now
        if bar.live.is_started:
            bar.stop()
