"""Repeatable randomness: the same seed gives the same orders, patients and answers on every machine."""

from __future__ import annotations

import uuid
from random import Random


def seeded_random(*seed: int | str) -> Random:
    """A generator for this seed. Different parts give independent generators: one more draw from one does not affect another."""
    return Random("/".join(map(str, seed)))  # noqa: S311 - test data, no secrets


def random_guid(rng: Random) -> str:
    """A random (version 4) guid."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
