"""The error that ends a demo early."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot continue; the text says why and what to do. `log_tail` is the end of a log that says more, if any."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail
