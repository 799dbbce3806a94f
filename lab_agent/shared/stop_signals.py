"""SIGTERM and SIGINT, heard from a program's start to its end: none is lost while one part of it follows another."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Self

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Takes the signals while its block runs; `received` is set by the first."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        self._name = ""
        self._stop: Callable[[str], None] | None = None

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number.name)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _NUMBERS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def pass_to(self, stop: Callable[[str], None]) -> None:
        """Call this with the name of each signal from now on, and of the one that has come before."""
        self._stop = stop
        if self.received.is_set():
            stop(self._name)

    def _receive(self, name: str) -> None:
        self._name = name
        self.received.set()
        if self._stop is not None:
            self._stop(name)
