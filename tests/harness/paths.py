"""Paths in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
CATALOGUE = ROOT / "config" / "catalogue"
"""The sample catalogue, a folder of CSV files."""
MAPPINGS = ROOT / "config" / "mappings"
"""The sample mapping tables."""
