"""The page of states, drawn from the tables that the code runs on: `python -m tools.docs.states > docs/states.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum

from lab_agent.domain.state_machines import JOB_TRANSITIONS, LINE_TRANSITIONS, ORDER_TRANSITIONS, REPORT_TRANSITIONS, StateT

_STATES_HEAD = """# The states

Drawn from the tables in `lab_agent/domain/state_machines.py`, which are the only place that knows which move is legal; a move that is
not drawn here raises and changes nothing. A test holds this page current.
"""
_ORDER_STATE_MEANINGS = {
    "seen": "found by the poll; being fetched until two part-of answers are equal",
    "fetched": "judged; its good lines go to the laboratory",
    "held": "may be our own fault: nothing is refused, an alert is open, it is judged again by itself",
    "handed_over": "the laboratory system has it",
    "reported": "every line has ended; the order-level Task follows",
    "rejected": "no line went to the laboratory; the order-level Task follows",
    "withdrawn": "the partner or the service ended it; the laboratory is told",
    "closed": "nothing is left to do; a corrected result is still delivered",
}
_LINE_STATE_MEANINGS = {
    "requested": "its Task is as the partner made it",
    "held": "came after its order was judged; a person accepts or refuses it",
    "rejected": "its Task is cancelled, with the reason",
    "accepted": "goes to the laboratory, or is there",
    "resulted": "a final report is on its way to the service",
    "completed": "its Task is completed",
    "cancelled": "the laboratory cannot perform it: its Task is cancelled, with the reason",
    "withdrawn": "somebody else ended its Task",
}
_REPORT_STATE_MEANINGS = {
    "received": "kept; its order is being looked for",
    "matched": "its order and lines are known; it is being uploaded",
    "unmatched": "no order, or more than one, fits; a person decides",
    "unmapped": "a code of it is in no mapping table; it goes on when the table has it",
    "held": "may not go out by itself; a person decides",
    "delivered": "on the service",
    "superseded": "a newer version took its place",
    "dismissed": "a person decided that it shall not go out",
}
_JOB_STATE_MEANINGS = {
    "due": "to be done at its time",
    "in_flight": "a worker has claimed it",
    "outcome_unknown": "it may have happened: a look comes first",
    "needs_review": "nobody can tell whether it happened: a person decides",
    "dead_letter": "it will not work by itself: a person decides",
    "done": "it has happened",
    "obsolete": "it is not needed any more",
    "dismissed": "a person decided that it shall not be done",
}


def states_page() -> str:
    """Give the page as Markdown with Mermaid diagrams."""
    parts = (
        _state_machine_section("An order", ORDER_TRANSITIONS, _ORDER_STATE_MEANINGS),
        _state_machine_section("An order line", LINE_TRANSITIONS, _LINE_STATE_MEANINGS),
        _state_machine_section("A version of a report", REPORT_TRANSITIONS, _REPORT_STATE_MEANINGS),
        _state_machine_section("An effect (a row of the outbox)", JOB_TRANSITIONS, _JOB_STATE_MEANINGS),
    )
    return _STATES_HEAD + "".join(parts)


def _state_machine_section(title: str, transitions: Mapping[StateT, frozenset[StateT]], meaning: Mapping[str, str]) -> str:
    rows = "".join(f"| `{state.value}` | {meaning[state.value]} |\n" for state in transitions)
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
