"""The log of commands: errors alone, since commands print.

It is set up when it is needed. What formats and redacts lines takes a while to import, and most commands write no line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override


def prepare() -> None:
    """Let the first line that a library logs set up the log; called once, before a command runs."""
    root = logging.getLogger()
    root.handlers[:] = [_FirstLineHandler()]
    root.setLevel(logging.ERROR)


def configure_if_imported() -> None:
    """Set up the log where the command has parts of ours that write to it: called when its modules have been imported."""
    if "structlog" in sys.modules:
        _configure()


@contextmanager
def silenced() -> Iterator[None]:
    """Write no line at all: for work whose orders and failures are made up."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _FirstLineHandler(logging.Handler):
    """Sets up the log, which takes this handler out of it, and hands the line on."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        _configure()
        logging.getLogger(record.name).handle(record)


def _configure() -> None:
    # Not at the top: see above.
    from lab_agent.settings.groups import LoggingSettings  # noqa: PLC0415
    from lab_agent.shared import logs  # noqa: PLC0415

    logs.configure(LoggingSettings(level="error"))
