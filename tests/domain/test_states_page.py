"""The page of states says what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab_agent.domain.lifecycle import JOB_TRANSITIONS, LINE_TRANSITIONS, ORDER_TRANSITIONS, REPORT_TRANSITIONS
from lab_agent.domain.states_page import state_diagram, states_page

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def test_the_page_is_current() -> None:
    """To mend it: `python -m lab_agent.domain.states_page > docs/states.md`."""
    assert PAGE.read_text(encoding="utf-8") == states_page()


@pytest.mark.parametrize("moves", [ORDER_TRANSITIONS, LINE_TRANSITIONS, REPORT_TRANSITIONS, JOB_TRANSITIONS])
def test_a_diagram_has_an_arrow_for_each_move_and_no_other(moves: dict) -> None:  # type: ignore[type-arg]
    drawn = {tuple(pair) for pair in re.findall(r"^    (\w+) --> (\w+)$", state_diagram(moves), re.MULTILINE)}
    assert drawn == {(state.value, target.value) for state, targets in moves.items() for target in targets}


def test_a_state_without_a_way_out_is_drawn_as_an_end() -> None:
    assert "closed --> [*]" in state_diagram(ORDER_TRANSITIONS)
    assert "[*] --> seen" in state_diagram(ORDER_TRANSITIONS)
