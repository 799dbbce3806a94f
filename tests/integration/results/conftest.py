"""The bench, opened and closed: that takes a quarter of a second, so that `make test` runs the first case of each kind alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.harness.results import ResultsBench, open_bench


@pytest.fixture
async def bench() -> AsyncIterator[ResultsBench]:
    """One order of three lines, handed over; documents are uploaded, no mapping tables."""
    async with open_bench() as opened:
        yield opened
