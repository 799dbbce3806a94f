"""`lab-agent check` while another program has locked the database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from lab_agent.conditions.ids import ConditionId
from tests.harness.daemon import title

SHORT = 10.0
"""Seconds; SQLite's usual patience is fifteen for each who writes."""


def test_check_says_soon_that_the_database_is_locked(lab: Any, cli: Callable[..., Any]) -> None:
    with closing(sqlite3.connect(lab.folder / "lab.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        done = cli("check", "--offline")
        assert time.monotonic() - began < SHORT
        other.execute("ROLLBACK")
    assert done.code == 2
    assert title(ConditionId.STORE_LOCKED) in done.out
