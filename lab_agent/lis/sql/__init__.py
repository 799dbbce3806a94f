"""The LIS by staging tables in its own database: orders are written to them, results are read from them.

An order is written with its lines, specimens and patient in one transaction, keyed by our key, so that a repeat changes
nothing. Results are committed before their row is marked (law 1); an invalid row keeps its error and stops no other (law 9).
"""

from __future__ import annotations

from lab_agent.lis.sql.adapter import SqlAdapter
from lab_agent.lis.sql.settings import SqlSettings

__all__ = ["SqlAdapter", "SqlSettings"]
