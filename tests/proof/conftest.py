"""What the proofs share: the processes of an installation."""

from tests.acceptance.conftest import harness

__all__ = ["harness"]
