from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.lab_sandbox.world import SandboxWorld, close, make_world


@pytest.fixture
async def world() -> AsyncIterator[SandboxWorld]:
    sandbox = make_world()
    yield sandbox
    await close(sandbox)


@pytest.fixture
async def world_factory() -> AsyncIterator[Any]:
    """Builds sandboxes with other settings."""
    sandboxes: list[SandboxWorld] = []

    def make(**changes: Any) -> SandboxWorld:
        sandboxes.append(make_world(**changes))
        return sandboxes[-1]

    yield make
    for one in sandboxes:
        await close(one)
