from __future__ import annotations

from lab_agent.rules.engine import RULES
from tests.harness.paths import ROOT
from tools.docs.rules import render_rules_page

PAGE = ROOT / "docs" / "rules.md"


def test_rules_page_is_current() -> None:
    """Run `make docs` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == render_rules_page(RULES)


def test_every_rule_is_on_the_page() -> None:
    assert all(f"`{rule.id}`" in render_rules_page(RULES) for rule in RULES)
