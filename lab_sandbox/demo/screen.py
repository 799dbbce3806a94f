"""What a person sees of the demo: headings, steps and checks, line by line, readable in a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from lab_sandbox.demo.ledger import Check


def counted(number: int, word: str) -> str:
    """`1 test`, `2 tests`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


class Screen:
    """Shows progress as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def heading(self, text: str) -> None:
        """A new part."""
        self._line(Text(f"\n{text}", style="bold"))

    def step(self, text: str) -> None:
        """Something that was done."""
        self._line(Text(f"  · {text}", style="dim"))

    def check(self, check: Check) -> None:
        """An outcome."""
        mark, style = ("✓", "green") if check.ok else ("✗", "bold red")
        line = Text(f"  {mark} ", style=style).append(check.name, style="default" if check.ok else style)
        self._line(line.append(f"  {check.detail}", style="dim") if check.detail else line)

    def trouble(self, text: str, tail: str = "") -> None:
        """What went wrong, with the end of a log."""
        self._line(Text(f"\n{text}", style="bold red"))
        for line in tail.splitlines():
            self._line(Text(f"    {line}", style="dim"))

    def places(self, places: Mapping[str, str]) -> None:
        """Names and where they are."""
        width = max(map(len, places))
        for name, where in places.items():
            self._line(Text(f"  {name.ljust(width)}  {where}"))

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)
