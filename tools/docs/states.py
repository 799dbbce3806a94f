"""The page of states, drawn from the tables that the code runs on: `python -m tools.docs.states > docs/states.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum

from lab_agent.domain.state_machines import JOB_TRANSITIONS, LINE_TRANSITIONS, ORDER_TRANSITIONS, REPORT_TRANSITIONS, StateT
from lab_agent.status.formatting import state_meaning

_STATES_HEAD = """# The states

Generated from the tables in `lab_agent/domain/state_machines.py`, which alone decide which transitions are legal; any other
raises an error and changes nothing. The meanings are those that the status page shows.
"""


def states_page() -> str:
    """Give the page as Markdown with Mermaid diagrams."""
    parts = (
        _state_machine_section("An order", ORDER_TRANSITIONS),
        _state_machine_section("An order line", LINE_TRANSITIONS),
        _state_machine_section("A version of a report", REPORT_TRANSITIONS),
        _state_machine_section("A job (a row of the outbox)", JOB_TRANSITIONS),
    )
    return _STATES_HEAD + "".join(parts)


def _state_machine_section(title: str, transitions: Mapping[StateT, frozenset[StateT]]) -> str:
    rows = "".join(f"| `{state.value}` | {state_meaning(state)} |\n" for state in transitions)
    return f"\n## {title}\n\n```mermaid\n{state_diagram(transitions)}```\n\n| State | Meaning |\n|---|---|\n{rows}"


def state_diagram(transitions: Mapping[StateT, frozenset[StateT]]) -> str:
    """Draw a table of moves (Mermaid, `stateDiagram-v2`); what comes first in the table is where it starts."""
    return "stateDiagram-v2\n" + "".join(f"    {arrow}\n" for arrow in _diagram_transitions(transitions))


def _diagram_transitions(transitions: Mapping[StateT, frozenset[StateT]]) -> Iterator[str]:
    order: list[StrEnum] = list(transitions)
    yield f"[*] --> {order[0].value}"
    for state, targets in transitions.items():
        yield from (f"{state.value} --> {target.value}" for target in sorted(targets, key=order.index))
        if not targets:
            yield f"{state.value} --> [*]"


if __name__ == "__main__":
    sys.stdout.write(states_page())
