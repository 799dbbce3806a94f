"""Probes of an exchange service, for outage trackers in tests."""

from __future__ import annotations


async def service_reachable() -> bool:
    """The service answers a harmless request."""
    return True


async def service_unreachable() -> bool:
    """The service answers nothing at all."""
    return False
