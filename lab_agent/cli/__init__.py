"""`lab-agent`: the command line. Thin: it parses, calls and prints; decisions are made elsewhere.

Importing this package only defines `main`, so that `lab-agent --help` starts fast.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line. Exit codes: 0 for success, 1 for an error (one sentence on standard error), 2 for wrong usage."""
    from lab_agent.cli.app import run  # noqa: PLC0415 - the imports of the commands are slow

    raise SystemExit(run())
