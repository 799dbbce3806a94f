"""Small stand-ins that several rooms' tests share."""

from __future__ import annotations


async def service_answers() -> bool:
    """The service answers a harmless question."""
    return True


async def service_is_silent() -> bool:
    """The service answers nothing at all."""
    return False
