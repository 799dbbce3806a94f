"""The demo's output: headings, steps and checks line by line, readable in a terminal and in a pipe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from rich.console import Console
from rich.text import Text

from lab_sandbox.demo.checks import Check

SILENCE = 10.0
"""Seconds without a line after which one says that the demo goes on."""


def pluralize(number: int, word: str) -> str:
    """`1 test`, `2 tests`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _visible(text: str) -> str:
    """Text that cannot steer the terminal: what is not printable, but for line ends and tabs, becomes an escape."""
    return "".join(char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text)


class DemoConsole:
    """Shows progress as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_at = time.monotonic()

    @asynccontextmanager
    async def without_silence(self, longest: float = SILENCE) -> AsyncIterator[None]:
        """Print a line whenever nothing was printed for so many seconds."""

        async def tell() -> None:
            while True:
                await asyncio.sleep(max(0.0, self._printed_at + longest - time.monotonic()))
                if time.monotonic() >= self._printed_at + longest:
                    self.step("still at work")

        telling = asyncio.create_task(tell())
        try:
            yield
        finally:
            telling.cancel()

    def heading(self, text: str) -> None:
        """Starts a new part."""
        self._print_line(Text(f"\n{_visible(text)}", style="bold"))

    def step(self, text: str) -> None:
        """Prints something that was done."""
        self._print_line(Text(f"  · {_visible(text)}", style="dim"))

    def check(self, check: Check) -> None:
        """Prints a check and its outcome."""
        mark, style = ("✓", "green") if check.ok else ("✗", "bold red")
        line = Text(f"  {mark} ", style=style).append(_visible(check.name), style="default" if check.ok else style)
        self._print_line(line.append(f"  {_visible(check.detail)}", style="dim") if check.detail else line)

    def error(self, text: str, log_tail: str = "") -> None:
        """Prints an error, with the end of a log."""
        self._print_line(Text(f"\n{_visible(text)}", style="bold red"))
        for line in log_tail.splitlines():
            self._print_line(Text(f"    {_visible(line)}", style="dim"))

    def addresses(self, addresses: Mapping[str, str]) -> None:
        """Prints names and addresses in two columns."""
        width = max(map(len, addresses))
        for name, address in addresses.items():
            self._print_line(Text(f"  {_visible(name.ljust(width))}  {_visible(address)}"))

    def _print_line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)
        self._printed_at = time.monotonic()
