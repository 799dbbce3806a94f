"""A dialect is learnt with the commands alone, in a laboratory that is set up and has seen nothing yet."""

from __future__ import annotations

from tests.integration.cli.conftest import cli, lab

__all__ = ["cli", "lab"]
