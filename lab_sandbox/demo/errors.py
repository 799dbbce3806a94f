"""What ends a demo before its story is told."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do. `tail` is the end of a log, if one tells more."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail
