"""The page of metrics says what the programs count."""

from __future__ import annotations

from tests.harness.paths import ROOT
from tools.docs.metrics import render_metrics_page


def test_metrics_page_is_current() -> None:
    """Run `make docs` when this fails."""
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == render_metrics_page()
