"""Probes of an exchange service, for outage trackers in tests."""

from __future__ import annotations


async def service_reachable() -> bool:
    return True


async def service_unreachable() -> bool:
    return False
