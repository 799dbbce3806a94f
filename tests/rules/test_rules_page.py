from __future__ import annotations

from pathlib import Path

from lab_agent.rules.document import render_rules_page
from lab_agent.rules.judge import RULES

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_says_what_the_rules_do() -> None:
    """To mend it: write `rules_page(RULES)` into docs/rules.md."""
    assert PAGE.read_text(encoding="utf-8") == render_rules_page(RULES)


def test_every_rule_is_on_the_page() -> None:
    assert all(f"`{rule.id}`" in render_rules_page(RULES) for rule in RULES)
