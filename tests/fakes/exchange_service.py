"""Small stand-ins that several rooms' tests share."""

from __future__ import annotations


async def service_reachable() -> bool:
    """The service answers a harmless question."""
    return True


async def service_unreachable() -> bool:
    """The service answers nothing at all."""
    return False
