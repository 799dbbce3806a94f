"""`lab-agent`: the command line. Thin: it parses, calls and prints; what is decided is decided elsewhere.

Importing this package does nothing but name `main`, so that `lab-agent --help` starts fast.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line: exit code 0 for done, 1 for one clear sentence on standard error, 2 for wrong usage."""
    from lab_agent.cli.app import run  # noqa: PLC0415 - what the commands import takes a while

    raise SystemExit(run())
