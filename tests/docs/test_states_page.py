"""The page of states says what the tables say."""

from __future__ import annotations

import re

import pytest

from lab_agent.domain.state_machines import JOB_TRANSITIONS, LINE_TRANSITIONS, ORDER_TRANSITIONS, REPORT_TRANSITIONS
from tests.harness.paths import ROOT
from tools.docs.states import state_diagram, states_page

PAGE = ROOT / "docs" / "states.md"


def test_states_page_is_current() -> None:
    """To update the page: `python -m tools.docs.states > docs/states.md`."""
    assert PAGE.read_text(encoding="utf-8") == states_page()


@pytest.mark.parametrize("moves", [ORDER_TRANSITIONS, LINE_TRANSITIONS, REPORT_TRANSITIONS, JOB_TRANSITIONS])
def test_diagram_has_exactly_the_listed_transitions(moves: dict) -> None:  # type: ignore[type-arg]
    drawn = {tuple(pair) for pair in re.findall(r"^    (\w+) --> (\w+)$", state_diagram(moves), re.MULTILINE)}
    assert drawn == {(state.value, target.value) for state, targets in moves.items() for target in targets}


def test_final_state_drawn_as_end() -> None:
    assert "done --> [*]" in state_diagram(JOB_TRANSITIONS)
    assert "[*] --> seen" in state_diagram(ORDER_TRANSITIONS)
