"""The demo's output: headings, steps and checks line by line, readable in a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from lab_sandbox.demo.checks import Check


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
